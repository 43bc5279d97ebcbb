"""`malt plan`: what a program would do on a cluster that one cannot try."""
