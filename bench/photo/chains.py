"""The ways from an image file to boxes."""

import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import PIL.Image
import PIL.ImageOps
import torch
from torch import Tensor

from lensbox.bench.photo import reference
from lensbox.bench.photo.opencv import load_opencv, opencv_canvas
from lensbox.bench.photo.previous_code import read_image
from lensbox.bench.photo.subject import Subject
from lensbox.runtime.detection import Detections
from lensbox.runtime.photo import Photo
from lensbox.runtime.torchscript import torchscript_call
from lensbox.runtime.transfer import to_device

LENSBOX = "lensbox"
PREVIOUS = "previous code"
PILLOW = "Pillow"
PILLOW_DRAFT = "Pillow, draft"
OPENCV = "OpenCV"
OPENCV_REDUCED = "OpenCV, reduced"


@dataclass(frozen=True)
class Steps:
    """What a step gives is what the next one takes.

    letterbox: gives the canvases, uint8 [1, 1, H, W] on the subject's device, and what `restore` needs.
    """

    decode: Callable[[bytes], Any]
    letterbox: Callable[[Any], tuple[Tensor, Any]]
    detect: Callable[[Tensor], Any]
    restore: Callable[[Any, Any], Detections]


@dataclass(frozen=True)
class Chain:
    """to_boxes: what a user calls. steps: the parts that it is made of, where they are timed, too."""

    to_boxes: Callable[[bytes], Detections]
    steps: Steps | None = None


def lensbox_chain(subject: Subject) -> Chain:
    """By the methods of `Artifact`, and in steps by those of its module."""
    artifact = subject.artifact

    def letterbox(photo: Photo) -> tuple[Tensor, Tensor]:
        windows = torch.tensor([(*photo.window, photo.width, photo.height)])
        with torchscript_call():
            pixels, windows = to_device([photo.pixels, windows], artifact.device)
            canvases, geometry = artifact.module.preprocess([pixels], windows)
            return canvases, geometry

    def restore(found: tuple[Tensor, Tensor, Tensor], geometry: Tensor) -> Detections:
        boxes, scores, counts = found
        count = int(counts[0])
        with torchscript_call():
            restored = artifact.module.restore(boxes, geometry)
        return Detections(restored[0, :count].cpu(), scores[0, :count].cpu())

    def to_boxes(file: bytes) -> Detections:
        return artifact.detect_image(artifact.read_photo(file))

    return Chain(to_boxes, Steps(artifact.read_photo, letterbox, artifact.detect, restore))


def previous_chain(subject: Subject) -> Chain:
    """See `previous_code`."""
    previous = subject.previous

    def letterbox(image: Tensor) -> tuple[Tensor, Tensor]:
        canvas, geometry = previous.letterbox(image)
        return canvas[None], geometry

    def detect(canvases: Tensor) -> tuple[Tensor, Tensor]:
        return previous.detect(canvases[0])

    def restore(found: tuple[Tensor, Tensor], geometry: Tensor) -> Detections:
        boxes, scores = found
        return Detections(previous.restore(boxes, geometry), scores.cpu())

    def to_boxes(file: bytes) -> Detections:
        return previous.detect_image(read_image(file))

    return Chain(to_boxes, Steps(read_image, letterbox, detect, restore))


def pillow_chain(subject: Subject, draft: bool = False) -> Chain:
    """draft: decodes no more than gray levels, at a scale of which twice the canvas is left."""

    def canvas_of(file: bytes) -> Tensor:
        image = PIL.Image.open(io.BytesIO(file))
        if draft:
            place = reference.fit(*image.size, subject.canvas)
            image.draft("L", (2 * place.width, 2 * place.height))
        return reference.canvas_of(PIL.ImageOps.exif_transpose(image), subject.canvas)

    return _with_our_network(subject, canvas_of)


def opencv_chain(subject: Subject, reduced: bool = False) -> Chain:
    """Gray levels alone. reduced: at a quarter of the sides, whatever the size. Raises UnavailableError."""
    cv2 = load_opencv(subject.threads)
    mode = cv2.IMREAD_REDUCED_GRAYSCALE_4 if reduced else cv2.IMREAD_GRAYSCALE

    def canvas_of(file: bytes) -> Tensor:
        return opencv_canvas(cv2, cv2.imdecode(np.frombuffer(file, np.uint8), mode), subject.canvas)

    return _with_our_network(subject, canvas_of)


def _with_our_network(subject: Subject, canvas_of: Callable[[bytes], Tensor]) -> Chain:
    """canvas_of: gives the canvas of a file, uint8 [1, H, W], on the CPU."""

    def to_boxes(file: bytes) -> Detections:
        boxes, scores, counts = subject.artifact.detect(canvas_of(file)[None])
        count = int(counts[0])
        restored = reference.restored(boxes[0, :count], reference.upright_size(file), subject.canvas)
        return Detections(restored, scores[0, :count].cpu())

    return Chain(to_boxes)


CHAINS: dict[str, Callable[[Subject], Chain]] = {
    LENSBOX: lensbox_chain,
    PREVIOUS: previous_chain,
    PILLOW: pillow_chain,
    PILLOW_DRAFT: lambda subject: pillow_chain(subject, draft=True),
    OPENCV: opencv_chain,
    OPENCV_REDUCED: lambda subject: opencv_chain(subject, reduced=True),
}
