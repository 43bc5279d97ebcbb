"""`malt run --bootstrap`: hosts that have python3 and sshd alone get the environment and the program by ssh."""
