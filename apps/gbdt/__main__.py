"""python -m apps.gbdt"""

from apps.gbdt.program import run
from apps.harness import main

main("apps.gbdt", run)
