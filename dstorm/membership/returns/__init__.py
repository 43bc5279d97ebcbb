"""Messages between ranks while a failed rank rejoins: that it is admitted, and what it receives."""
