"""python -m apps.mf"""

from apps.harness import main
from apps.mf.program import run

main("apps.mf", run)
