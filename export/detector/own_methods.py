"""Find the methods of a detector that differ from Lensbox's, which detect-only files cannot hold."""

from collections.abc import Callable, Collection
from typing import Any

import torch

from lensbox.common.errors import ArtifactError
from lensbox.model import Detector
from lensbox.ops.canvas import fit_to_canvases, restore_boxes, restore_points

# Detect-only files use Lensbox's own versions of these methods.
LETTERBOX_METHODS = ("preprocess", "restore", "restore_points")


def methods_left_behind(detector: Detector, kind: str) -> list[str]:
    """Return the own methods that a detect-only file can omit: at most `loss`.

    kind: the kind of file, such as "an ONNX file". Raises ArtifactError for own methods that detections need.
    """
    own = own_methods(detector)
    if letterbox := [method for method in own if method in LETTERBOX_METHODS]:
        raise ArtifactError(
            f"the detector's own {' and '.join(letterbox)} cannot be exported: {kind} holds only detect, "
            "and its runtimes use Lensbox's methods (lensbox::letterbox)"
        )
    return own


def needed_ops(called: Collection[str], left_behind: Collection[str]) -> tuple[str, ...]:
    """Return the schemas of the operators that a file and its runtimes call."""
    beside = [torch.ops.lensbox.letterbox.default]
    if "loss" not in left_behind:
        beside.append(torch.ops.lensbox.masked_giou_loss.default)
    return tuple(sorted({*called, *(str(op._schema) for op in beside)}))


def own_methods(detector: Detector) -> list[str]:
    """Return the names among `preprocess`, `restore`, `restore_points`, `loss` that differ from Lensbox's.

    Methods are compared by their results, for pictures of several shapes, whole and as windows of larger
    photographs: a detector may have methods that only call Lensbox's. A method that rejects input of
    Lensbox's method differs.
    """
    with torch.no_grad():
        return [
            name
            for name, is_equal in _comparisons(detector).items()
            if hasattr(detector, name) and not _succeeds(is_equal)
        ]


def _succeeds(is_equal: Callable[[], bool]) -> bool:
    try:
        return is_equal()
    except Exception:  # whatever the user's code raises
        return False


def _comparisons(detector: Any) -> dict[str, Callable[[], bool]]:
    """Return bitwise comparisons of a detector's methods with Lensbox's, by name."""
    specification = detector.specification
    fit = specification.height, specification.width, specification.channels, specification.fill
    generator = torch.Generator().manual_seed(0)
    shapes = (3, 48, 64), (1, 40, 90), (3, 300, 200), (4, 77, 33)
    images = [torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator) for shape in shapes]
    sizes = [(2.0 * image.shape[2], 2.0 * image.shape[1]) for image in images]
    windows = torch.tensor([[-3.0, -1.0, width - 3, height - 1, width, height] for width, height in sizes])
    _, geometry = fit_to_canvases(images, windows, *fit)
    corners = 400 * torch.rand(len(images), 6, 2, 2, generator=generator) - 50
    boxes = torch.cat([corners.amin(dim=2), corners.amax(dim=2)], dim=-1)
    points = boxes.view(*boxes.shape[:2], 2, 2)
    targets = boxes + 7
    targets[:, -1] = 0  # padding
    return {
        "preprocess": lambda: all(
            _equal(detector.preprocess(images, part), fit_to_canvases(images, part, *fit))
            for part in (None, windows)
        ),
        "restore": lambda: _equal(detector.restore(boxes, geometry), restore_boxes(boxes, geometry)),
        "restore_points": lambda: _equal(
            detector.restore_points(points, geometry), restore_points(points, geometry)
        ),
        "loss": lambda: _equal(
            detector.loss(boxes, targets), torch.ops.lensbox.masked_giou_loss(boxes, targets)
        ),
    }


def _equal(actual: Any, wanted: Any) -> bool:
    if isinstance(wanted, tuple):
        return len(actual) == len(wanted) and all(map(_equal, actual, wanted))
    return torch.equal(actual, wanted)
