"""Training data: files read once, by all ranks together, and mapped into memory from then on."""

from malt.data.dataset import Dataset, load_svmlight, open_svmlight

__all__ = ["Dataset", "load_svmlight", "open_svmlight"]
