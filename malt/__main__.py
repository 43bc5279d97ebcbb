"""python -m malt: the command line."""

import sys

from malt.cli import main

if __name__ == "__main__":
    sys.exit(main())
