"""Find the methods of a detector that answer unlike Lensbox's, which a file with `detect` alone lacks."""

from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor

from lensbox.common.errors import ArtifactError
from lensbox.export.verify.pictures import draw_faces
from lensbox.model import Detector
from lensbox.ops.canvas import fit_to_canvases, restore_boxes, restore_points

# A file with `detect` alone leaves these to Lensbox's own.
LETTERBOX_METHODS = ("preprocess", "restore", "restore_points")


def methods_left_behind(
    detector: Detector, kind: str, error: type[ArtifactError] = ArtifactError
) -> list[str]:
    """Return the detector's own methods that a file with `detect` alone cannot hold: at most `loss`.

    kind: of file, as "an ONNX file". Raises `error` for the others, which detections need.
    """
    own = own_methods(detector)
    if letterbox := [method for method in own if method in LETTERBOX_METHODS]:
        raise error(
            f"the detector's own {' and '.join(letterbox)} cannot be exported: {kind} holds detect alone, "
            "and its runtimes fit and restore as Lensbox does (lensbox::letterbox)"
        )
    return own


def needed_ops(called: Collection[str], left_behind: Collection[str]) -> tuple[str, ...]:
    """Return the schemas of the operators that a file calls, and that the runtimes call beside it."""
    beside = [torch.ops.lensbox.letterbox.default]
    if "loss" not in left_behind:
        beside.append(torch.ops.lensbox.masked_giou_loss.default)
    return tuple(sorted({*called, *(str(op._schema) for op in beside)}))


def own_methods(detector: Detector) -> list[str]:
    """Return the names of `preprocess`, `restore`, `restore_points`, `loss` that answer unlike Lensbox's.

    A detector may have methods that only call Lensbox's, so what counts is what they answer: for pictures of
    several shapes, whole and as windows of larger photographs. One that does not take all that Lensbox's
    takes is its own.
    """
    answers = _Answers(detector)
    methods = (*LETTERBOX_METHODS, "loss")
    with torch.no_grad():
        return [name for name in methods if hasattr(detector, name) and not _answers_alike(answers, name)]


def _answers_alike(answers: "_Answers", method: str) -> bool:
    try:
        return bool(getattr(answers, method)())
    except Exception:  # whatever the user's code raises
        return False


class _Answers:
    """Comparisons of a detector's methods with Lensbox's, to the bit."""

    def __init__(self, detector: Any) -> None:
        specification = detector.specification
        self._detector = detector
        self._fit = (specification.height, specification.width, specification.channels, specification.fill)
        generator = torch.Generator().manual_seed(0)
        shapes = ((1, 40, 90), (3, 300, 200), (4, 77, 33))
        self._images = [draw_faces(0), draw_faces(1)]
        self._images += [
            torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator) for shape in shapes
        ]
        sizes = [image.shape[1:] for image in self._images]
        self._windows = torch.tensor(
            [
                [-3.0, -1.0, 2 * width - 3.0, 2 * height - 1.0, 2 * width, 2 * height]
                for height, width in sizes
            ]
        )
        _, self._geometry = fit_to_canvases(self._images, self._windows, *self._fit)
        corners = 400 * torch.rand(len(self._images), 6, 2, 2, generator=generator) - 50
        self._boxes = torch.cat([corners.amin(dim=2), corners.amax(dim=2)], dim=-1)

    def preprocess(self) -> bool:
        """Compare for whole photographs and for windows."""
        return all(
            _equal(self._detector.preprocess(self._images, windows), self._fitted(windows))
            for windows in (None, self._windows)
        )

    def restore(self) -> bool:
        """Compare boxes."""
        wanted = restore_boxes(self._boxes, self._geometry)
        return _equal(self._detector.restore(self._boxes, self._geometry), wanted)

    def restore_points(self) -> bool:
        """Compare points."""
        points = self._boxes.view(*self._boxes.shape[:2], 2, 2)
        wanted = restore_points(points, self._geometry)
        return _equal(self._detector.restore_points(points, self._geometry), wanted)

    def loss(self) -> bool:
        """Compare with padding among the targets."""
        targets = self._boxes + 7
        targets[:, -1] = 0
        wanted = torch.ops.lensbox.masked_giou_loss(self._boxes, targets)
        return _equal(self._detector.loss(self._boxes, targets), wanted)

    def _fitted(self, windows: Tensor | None) -> tuple[Tensor, Tensor]:
        return fit_to_canvases(self._images, windows, *self._fit)


def _equal(actual: Any, wanted: Any) -> bool:
    if isinstance(wanted, tuple):
        return len(actual) == len(wanted) and all(map(_equal, actual, wanted))
    return torch.equal(actual, wanted)
