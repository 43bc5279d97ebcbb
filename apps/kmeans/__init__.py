"""k-means clustering by Lloyd's iterations or mini-batches: python -m apps.kmeans."""
