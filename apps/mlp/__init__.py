"""A neural network of dense layers that tells pictures apart: python -m apps.mlp."""
