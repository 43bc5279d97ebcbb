"""Pictures that programs read: idx files."""
