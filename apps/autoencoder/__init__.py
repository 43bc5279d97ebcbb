"""A sparse autoencoder of patches of pictures: python -m apps.autoencoder."""
