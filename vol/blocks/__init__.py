"""Blocks of rows, each of which one rank holds at a time, and passes on."""

from vol.blocks.blocks import Blocks, Visit

__all__ = ["Blocks", "Visit"]
