"""python -m apps.lda"""

from apps.harness import main

main("apps.lda")
