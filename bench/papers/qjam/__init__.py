"""A sparse autoencoder through malt.map_reduce on more and more ranks: the experiment of Qjam (2010)."""
