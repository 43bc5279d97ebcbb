"""python -m apps.embed"""

from apps.harness import main

main("apps.embed")
