"""Files that appear whole or not at all."""

from lensbox.files.atomic_write import atomic_write

__all__ = ["atomic_write"]
