"""python -m apps.embed"""

from apps.embed.program import run
from apps.harness import main

main("apps.embed", run)
