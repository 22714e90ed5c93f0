"""The project's own benchmarks: `lensbox bench ops`, `article` and `serve`.

Importing this package does not import torch.
"""

import importlib
import sys
from pathlib import Path
from types import ModuleType

# The groups of `lensbox bench ops`, in the order in which they run, and the files of `ops` with their cases.
GROUPS = {"headline": "loss", "weighted": "loss", "nms": "nms", "letterbox": "letterbox", "sizes": "loss"}


def article_module(name: str) -> ModuleType:
    """Import a module of `examples/article`, whose losses are peers of the ops."""
    folder = str(Path(__file__).resolve().parents[1] / "examples" / "article")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return importlib.import_module(name)
