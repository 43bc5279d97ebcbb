"""Exchanges and trainings on hosts made of namespaces, beside MPI's own calls."""
