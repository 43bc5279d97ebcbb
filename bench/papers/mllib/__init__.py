"""What ranks of a linear model send each other, and when: the experiments of MLlib* (ICDE 2019)."""
