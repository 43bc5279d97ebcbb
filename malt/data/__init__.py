"""Training data: files that all ranks parse once, together, and later map into memory."""

from malt.data.dataset import Dataset, load_svmlight, open_svmlight
from malt.data.ratings import Ratings, load_ratings, open_ratings, owners
from malt.data.shards import rows_of

__all__ = ["Dataset", "Ratings", "load_ratings", "load_svmlight", "open_ratings", "open_svmlight", "owners", "rows_of"]
