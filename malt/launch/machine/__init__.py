"""The cores, memory and networks that a job may use on this machine."""
