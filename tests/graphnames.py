"""The graphs that tests of vectors run on, on any number of ranks."""

GRAPHS = [
    "all", "ring", "halton", "chord", "exponential", "one-peer", "pairs", "hypercube", "torus", "random", "star",
    "auto",
]  # fmt: skip
