"""The `lensbox` console command."""

from lensbox.cli.dispatch import main

__all__ = ["main"]
