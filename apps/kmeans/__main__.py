"""python -m apps.kmeans"""

from apps.harness import main

main("apps.kmeans")
