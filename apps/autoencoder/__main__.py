"""python -m apps.autoencoder"""

from apps.harness import main

main("apps.autoencoder")
