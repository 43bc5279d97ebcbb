"""python -m apps.svm"""

from apps.harness import main

main("apps.svm")
