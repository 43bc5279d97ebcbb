"""python -m apps.mlp"""

from apps.harness import main

main("apps.mlp")
