"""Gradient-boosted trees on histograms: python -m apps.gbdt."""
