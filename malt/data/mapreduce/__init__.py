"""`malt.map_reduce`: a function over chunks of a dataset, its results reduced."""

from malt.data.mapreduce.mapreduce import map_reduce

__all__ = ["map_reduce"]
