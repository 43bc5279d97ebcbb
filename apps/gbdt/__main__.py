"""python -m apps.gbdt"""

from apps.harness import main

main("apps.gbdt")
