"""python -m apps.logistic"""

from apps.harness import main
from apps.logistic.program import run

main("apps.logistic", run)
