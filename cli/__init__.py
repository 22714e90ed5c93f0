"""The `lensbox` console command."""

from lensbox.cli.main import main

__all__ = ["main"]
