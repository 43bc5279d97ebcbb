"""Linear classifiers to the digits wanted, by batch and stochastic optimizers: python -m apps.logistic."""
