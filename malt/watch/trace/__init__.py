"""What ranks write down of their exchanges, and what is made of it: a timeline for Perfetto, and a report."""
