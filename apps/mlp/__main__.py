"""python -m apps.mlp"""

from apps.harness import main
from apps.mlp.program import run

main("apps.mlp", run)
