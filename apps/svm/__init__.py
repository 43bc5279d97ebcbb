"""A linear classifier by stochastic gradient descent: python -m apps.svm."""
