"""python -m apps.autoencoder"""

from apps.autoencoder.program import run
from apps.harness import main

main("apps.autoencoder", run)
