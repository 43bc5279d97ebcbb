"""What tests of tests/mpi use of Hypothesis, or stand-ins that skip them: they also run where it is not installed."""

import pytest

try:
    from hypothesis import given, settings
    from hypothesis import strategies as st
except ImportError:
    from unittest.mock import MagicMock

    st = settings = MagicMock()
    settings.side_effect = lambda **options: lambda test: test

    def given(*_, **__):
        return pytest.mark.skip(reason="needs hypothesis")


__all__ = ["given", "settings", "st"]
