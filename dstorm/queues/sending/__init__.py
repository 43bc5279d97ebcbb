"""The sending end of receive queues, and messages that leave for other hosts."""
