"""The optional methods of a detector, which detect-only files cannot hold."""

from collections.abc import Collection

import torch

from lensbox.common.errors import ArtifactError
from lensbox.model import Detector

# Detect-only files use Lensbox's own versions of these methods.
FIT_METHODS = ("preprocess", "restore", "restore_points")


def own_methods(detector: Detector) -> list[str]:
    """Return the names of the optional methods that a detector has: see `MoreOfADetector`."""
    return [name for name in (*FIT_METHODS, "loss") if hasattr(detector, name)]


def methods_left_behind(detector: Detector, kind: str) -> list[str]:
    """Return the own methods that a detect-only file can omit: at most `loss`.

    kind: the kind of file, such as "an ONNX file". Raises ArtifactError for own methods that detections need.
    """
    own = own_methods(detector)
    if fitting := [method for method in own if method in FIT_METHODS]:
        raise ArtifactError(
            f"the detector's own {' and '.join(fitting)} cannot be exported: {kind} holds only detect, "
            "and its runtimes use Lensbox's methods (lensbox::fit)"
        )
    return own


def needed_ops(called: Collection[str], left_behind: Collection[str]) -> tuple[str, ...]:
    """Return the schemas of the operators that a file and its runtimes call."""
    beside = [torch.ops.lensbox.fit.default]
    if "loss" not in left_behind:
        beside.append(torch.ops.lensbox.masked_giou_loss.default)
    return tuple(sorted({*called, *(str(op._schema) for op in beside)}))
