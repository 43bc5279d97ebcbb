"""What messages to other hosts take, beside MPI's own calls."""
