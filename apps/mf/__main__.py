"""python -m apps.mf"""

from apps.harness import main

main("apps.mf")
