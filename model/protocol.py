"""What a module must have to become an artifact. `FaceDetector` is one, docs/your_detector.md has more."""

from typing import Protocol

from torch import Tensor

from lensbox.model.specification import DetectorSpec


class Detector(Protocol):
    """The whole of what you write: a `torch.nn.Module` that `torch.jit.script` takes, with these two members.

    Everything else is supplied: images of any sizes are fitted to the canvas (`lensbox::letterbox`), boxes
    and points come back in pixels of the photographs, and there is a GIoU loss. `MoreOfADetector` has the
    methods by which a detector may do these things in its own way.
    """

    @property
    def specification(self) -> DetectorSpec:
        """Set in `__init__`: `self.specification = DetectorSpec(height=192, width=320)`."""

    def detect(
        self, images: Tensor, score_threshold: float, iou_threshold: float
    ) -> tuple[Tensor, Tensor, Tensor] | dict[str, Tensor]:
        """The detections of each canvas, best first.

        images: uint8 [B, channels, height, width]; thresholds: 0 to 1. Returns, for up to K detections,
            boxes    float32 [B, K, 4]   x1, y1, x2, y2 in canvas pixels
            scores   float32 [B, K]      0 to 1, falling
            counts   int32 or int64 [B]  detections in each canvas; slots after them are ignored
        as a tuple of these three; or as a dict with these names and, if the specification has `classes`,
            labels   int64 [B, K]        an index into them
        and for each name in its `points` and `values`
            NAME     [B, K, *shape]      float32; values may be int64, too
        It is called without gradients.
        """


class MoreOfADetector(Detector, Protocol):
    """What a detector may bring instead of Lensbox's own; each method alone may be there or not."""

    def preprocess(self, images: list[Tensor], windows: Tensor | None) -> tuple[Tensor, Tensor]:
        """Images, uint8 [C, H, W] with C = 1, 3 or 4, of any sizes, to canvases for `detect`.

        windows: float32 [B, 6], or None: see `lensbox.ops.canvas.geometry_of_windows`. Returns canvases,
        uint8 [B, channels, height, width], and whatever `restore` needs of each image, float32 [B, 6].
        """

    def restore(self, boxes: Tensor, geometry: Tensor) -> Tensor:
        """Boxes of `detect`, [B, K, 4], in pixels of the photographs, [B, K, 4]."""

    def restore_points(self, points: Tensor, geometry: Tensor) -> Tensor:
        """Points of `detect`, [B, K, ..., 2], in pixels of the photographs, of the same shape."""

    def loss(self, predictions: Tensor, targets: Tensor) -> Tensor:
        """A scalar for boxes [..., 4] and their targets, of which those whose y2 is 0 are padding."""
