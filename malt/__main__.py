"""The command line as `python -m malt`."""

import sys

from malt.commands.command_line import main

if __name__ == "__main__":
    sys.exit(main())
