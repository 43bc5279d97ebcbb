"""The begin of a session whose ranks may fail, and the reports about ranks that have failed."""
