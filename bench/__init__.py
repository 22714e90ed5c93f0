"""The project's own benchmarks: `lensbox bench ops`, `article` and `serve`.

Importing this package does not import torch.
"""

import importlib
import sys
from pathlib import Path
from types import ModuleType

# The groups of `lensbox bench ops`, in the order in which they run, and the functions that yield their cases.
GROUPS = {
    "headline": "lensbox.bench.ops.loss:headline_cases",
    "weighted": "lensbox.bench.ops.loss:weighted_cases",
    "nms": "lensbox.bench.ops.nms:nms_cases",
    "letterbox": "lensbox.bench.ops.letterbox:letterbox_cases",
    "sizes": "lensbox.bench.ops.loss:size_cases",
}


def article_module(name: str) -> ModuleType:
    """Import a module of `examples/article`, whose losses are peers of the ops."""
    folder = str(Path(__file__).resolve().parents[1] / "examples" / "article")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return importlib.import_module(name)
