"""Collectives in rounds: by Puts into mailboxes, where a rank may fail, and in memory that all ranks map."""
