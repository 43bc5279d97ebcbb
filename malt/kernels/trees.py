"""The name of `malt.models.trees` of before, for programs that have it."""

import sys
from importlib import import_module

sys.modules[__name__] = import_module("malt.models.trees")
