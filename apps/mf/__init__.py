"""Matrix factorization by stochastic gradient descent: python -m apps.mf."""
