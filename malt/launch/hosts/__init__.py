"""The hosts of a job: which there are, whether they can be used, and what runs on them."""
