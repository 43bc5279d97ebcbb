"""The program that runs on each other host while a job does, and the modules that it is sent with."""
