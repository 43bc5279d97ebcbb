"""python -m apps.lda"""

from apps.harness import main
from apps.lda.program import run

main("apps.lda", run)
