"""Vectors of the nodes of a graph, by DeepWalk and node2vec: python -m apps.embed."""
