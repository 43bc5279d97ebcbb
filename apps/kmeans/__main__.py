"""python -m apps.kmeans"""

from apps.harness import main
from apps.kmeans.program import run

main("apps.kmeans", run)
