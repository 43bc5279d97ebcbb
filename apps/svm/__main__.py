"""python -m apps.svm"""

from apps.harness import main
from apps.svm.program import run

main("apps.svm", run)
