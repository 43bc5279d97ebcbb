"""The processes of a job: its mpiexec until nothing of it is left, and how its ranks leave."""
