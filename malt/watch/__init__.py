"""Shows a running job: the records of its ranks, their readers, and the tables drawn of them."""
