"""python -m apps.logistic"""

from apps.harness import main

main("apps.logistic")
