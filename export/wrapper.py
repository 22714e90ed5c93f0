"""Make any detector a module with all methods of an artifact, and find the methods that are its own."""

import inspect
from collections.abc import Collection
from typing import Any, Final, cast

import torch
from torch import Tensor, nn

from lensbox.common.errors import ArtifactError
from lensbox.export.verify.pictures import draw_faces
from lensbox.model import Detector
from lensbox.model.checks import check_threshold, dtype_name
from lensbox.ops.canvas import fit_to_canvases, restore_boxes, restore_points
from lensbox.runtime.formats.torchscript import METHODS

# A file with `detect` alone leaves these to Lensbox's own.
LETTERBOX_METHODS = ("preprocess", "restore", "restore_points")


def deployed(detector: Detector) -> nn.Module:
    """Return the detector if it has all methods of an artifact, marked with `torch.jit.export`; else wrap it.

    It must follow the protocol, on the CPU.
    """
    assert isinstance(detector, nn.Module)
    complete = all(_is_exported(getattr(detector, method, None)) for method in METHODS)
    complete = complete and _takes_whole_photographs(cast(Any, detector).preprocess)
    return detector if complete and not _returns_dict(detector) else DetectorWrapper(detector)


def methods_of(detector: Detector) -> tuple[str, ...]:
    """Return the methods that the artifact of a detector has."""
    specification = detector.specification
    further = ["detect_named"] if specification.classes or specification.extras else []
    further += ["restore_points"] if specification.points else []
    return (*METHODS, *further)


def _is_exported(method: Any) -> bool:
    return getattr(method, "_torchscript_modifier", None) is torch._jit_internal.FunctionModifiers.EXPORT


def _takes_whole_photographs(preprocess: Any) -> bool:
    """Return whether `windows` may be left out: an artifact allows it, the protocol does not ask for it."""
    try:
        inspect.signature(preprocess).bind([])
    except TypeError:
        return False
    return True


def _returns_dict(detector: Detector) -> bool:
    specification = detector.specification
    canvas = torch.zeros(
        1, specification.channels, specification.height, specification.width, dtype=torch.uint8
    )
    with torch.no_grad():
        return isinstance(detector.detect(canvas, 1.0, 0.5), dict)


class DetectorWrapper(nn.Module):
    """A detector with Lensbox's preprocess, restore and loss where it brings none of its own.

    TorchScript compiles only that branch of an `if` that a `Final` attribute chooses, so each artifact holds
    the code that it needs, and none that would not fit it.
    """

    height: Final[int]
    width: Final[int]
    channels: Final[int]
    fill: Final[int]
    returns_dict: Final[bool]
    own_preprocess: Final[bool]
    own_restore: Final[bool]
    own_restore_points: Final[bool]
    own_loss: Final[bool]

    def __init__(self, detector: Detector) -> None:
        super().__init__()
        specification = detector.specification
        self.height, self.width = specification.height, specification.width
        self.channels, self.fill = specification.channels, specification.fill
        self.returns_dict = _returns_dict(detector)
        self.own_preprocess = hasattr(detector, "preprocess")
        self.own_restore = hasattr(detector, "restore")
        self.own_restore_points = hasattr(detector, "restore_points")
        self.own_loss = hasattr(detector, "loss")
        self.detector = cast(Any, detector)

    @torch.jit.export
    def preprocess(self, images: list[Tensor], windows: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """See `fit_to_canvases`, unless the detector has its own."""
        if self.own_preprocess:
            canvases, geometry = self.detector.preprocess(images, windows)
        else:
            canvases, geometry = fit_to_canvases(
                images, windows, self.height, self.width, self.channels, self.fill
            )
        return canvases, geometry

    @torch.jit.export
    def detect(
        self, images: Tensor, score_threshold: float, iou_threshold: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Boxes, scores and counts of `Detector.detect`. Raises ValueError for bad canvases or thresholds."""
        self.check(images, score_threshold, iou_threshold)
        with torch.no_grad():
            found = self.detector.detect(images, score_threshold, iou_threshold)
            if self.returns_dict:
                boxes, scores, counts = found["boxes"], found["scores"], found["counts"]
            else:
                boxes, scores, counts = found
            return boxes, scores, counts

    @torch.jit.export
    def detect_named(self, images: Tensor, score_threshold: float, iou_threshold: float) -> dict[str, Tensor]:
        """All outputs of `Detector.detect` by name, labels and extras too."""
        self.check(images, score_threshold, iou_threshold)
        with torch.no_grad():
            found = self.detector.detect(images, score_threshold, iou_threshold)
            if self.returns_dict:
                outputs: dict[str, Tensor] = found
            else:
                boxes, scores, counts = found
                outputs = {"boxes": boxes, "scores": scores, "counts": counts}
            return outputs

    @torch.jit.export
    def restore(self, boxes: Tensor, geometry: Tensor) -> Tensor:
        """See `restore_boxes`, unless the detector has its own."""
        if self.own_restore:
            restored: Tensor = self.detector.restore(boxes, geometry)
        else:
            restored = restore_boxes(boxes, geometry)
        return restored

    @torch.jit.export
    def restore_points(self, points: Tensor, geometry: Tensor) -> Tensor:
        """See `lensbox.ops.canvas.restore_points`, unless the detector has its own."""
        if self.own_restore_points:
            restored: Tensor = self.detector.restore_points(points, geometry)
        else:
            restored = restore_points(points, geometry)
        return restored

    @torch.jit.export
    def loss(self, predictions: Tensor, targets: Tensor) -> Tensor:
        """Mean of 1 - GIoU (see `lensbox.ops.masked_giou_loss`), unless the detector has its own."""
        if self.own_loss:
            loss: Tensor = self.detector.loss(predictions, targets)
        else:
            loss = torch.ops.lensbox.masked_giou_loss(predictions, targets)
        return loss

    def check(self, images: Tensor, score_threshold: float, iou_threshold: float) -> None:
        """So that the detector itself need not."""
        if images.dtype != torch.uint8:
            raise ValueError(f"images must be uint8, got {dtype_name(images)}")
        canvas = [self.channels, self.height, self.width]
        if images.dim() != 4 or list(images.shape[1:]) != canvas:
            raise ValueError(
                f"images must have the shape [B, C, H, W] with C, H, W = {canvas}, got {images.shape}"
            )
        check_threshold("score_threshold", score_threshold)
        check_threshold("iou_threshold", iou_threshold)


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
