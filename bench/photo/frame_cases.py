"""From RGB frames in memory to canvases."""

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import numpy as np
import PIL.Image
import torch
import torch.nn.functional as F  # noqa: N812 (the name every torch user knows)
from torch import Tensor

from lensbox.bench.comparison import call_series, clock_of, complete_series, graph_series
from lensbox.bench.measurement import Effort
from lensbox.bench.photo import reference
from lensbox.bench.photo.case import Case, Way
from lensbox.bench.photo.chains import LENSBOX, OPENCV, PILLOW, PREVIOUS
from lensbox.bench.photo.check import require_near, require_same_bytes
from lensbox.bench.photo.opencv import load_opencv, opencv_canvas
from lensbox.bench.photo.photographs import photo_pixels
from lensbox.bench.photo.subject import Subject
from lensbox.bench.timing import Series
from lensbox.ops import letterbox

CALL, DEVICE_TIME = "to canvas", "to canvas, device time"
LENSBOX_PLANES = "lensbox, planes"
TORCH_UINT8 = "torch uint8, antialias"
TORCH_FLOAT = "torch float32, antialias"

Frames = Any  # in the form that a way likes best
Resize = Callable[[Frames], Tensor]  # gives canvases, uint8 [B, 1, H, W]

# Of gray levels, on average and at most: rounding in other places, or once more; another filter altogether.
_EXACT, _ROUNDING, _ANOTHER_FILTER = (0.0, 0.0), (0.5, 2.0), (4.0, 128.0)


def frame_case(subject: Subject, width: int, height: int) -> Case:
    """One frame on the CPU."""
    pixels = photo_pixels(width, height)
    expected = _expected([pixels], subject)
    interleaved = torch.from_numpy(pixels).permute(2, 0, 1)
    planes = interleaved.contiguous()
    ways: list[tuple[str, Callable[[], Resize], Frames, tuple[float, float]]] = [
        (LENSBOX, lambda: partial(_lensbox, subject), [interleaved], _EXACT),
        (LENSBOX_PLANES, lambda: partial(_lensbox, subject), [planes], _EXACT),
        (PREVIOUS, lambda: partial(_previous, subject), [planes], _ROUNDING),
        (PILLOW, lambda: partial(_pillow, subject), PIL.Image.fromarray(pixels), _EXACT),
        (OPENCV, lambda: _opencv(subject), pixels, _ANOTHER_FILTER),
        (TORCH_UINT8, lambda: partial(_torch_uint8, subject), planes[None], _ROUNDING),
        (TORCH_FLOAT, lambda: partial(_torch_float, subject), planes[None], _ROUNDING),
    ]

    def prepare(
        make: Callable[[], Resize], frames: Frames, tolerance: tuple[float, float], effort: Effort
    ) -> Series:
        call = partial(make(), frames)
        _check(call(), expected, tolerance)
        return call_series(call, effort, clock_of(subject.threads))

    return Case(
        f"RGB frame {width} x {height}",
        [
            Way(CALL, name, partial(prepare, make, frames, tolerance))
            for name, make, frames, tolerance in ways
        ],
    )


def batch_case(subject: Subject, width: int, height: int, count: int) -> Case:
    """Many frames that lie on the GPU."""
    distinct = [photo_pixels(width, height, variant) for variant in range(2)]
    frames = [np.roll(distinct[index % 2], 16 * index, axis=1) for index in range(count)]
    expected = _expected(frames, subject)
    interleaved = [torch.from_numpy(frame).to(subject.device).permute(2, 0, 1) for frame in frames]
    planes = [frame.contiguous() for frame in interleaved]
    useful_bytes = count * (3 * width * height + subject.canvas.width * subject.canvas.height)
    ways: list[tuple[str, str, Resize, Frames, tuple[float, float]]] = [
        (step, name, resize, form, tolerance)
        for name, resize, form, tolerance in (
            (LENSBOX, partial(_lensbox, subject), interleaved, _EXACT),
            (LENSBOX_PLANES, partial(_lensbox, subject), planes, _EXACT),
            (PREVIOUS, partial(_previous, subject), planes, _ROUNDING),
            (TORCH_FLOAT, partial(_torch_float, subject), torch.stack(planes), _ROUNDING),
        )
        for step in ((CALL,) if name == PREVIOUS else (CALL, DEVICE_TIME))
    ]

    def prepare(
        step: str, resize: Resize, form: Frames, tolerance: tuple[float, float], effort: Effort
    ) -> Series:
        call = partial(resize, form)
        _check(call(), expected, tolerance)
        return graph_series(call, effort) if step == DEVICE_TIME else complete_series(call, effort)

    return Case(
        f"{count} RGB frames {width} x {height}",
        [
            Way(
                step,
                name,
                partial(prepare, step, resize, form, tolerance),
                useful_bytes if step == DEVICE_TIME else 0,
            )
            for step, name, resize, form, tolerance in ways
        ],
    )


def _check(canvases: Tensor, expected: Tensor, tolerance: tuple[float, float]) -> None:
    if tolerance == _EXACT:
        require_same_bytes("canvas", canvases, expected)
    else:
        require_near("canvas", canvases, expected, *tolerance)


def _expected(frames: Sequence[Any], subject: Subject) -> Tensor:
    return torch.stack([reference.canvas_of(PIL.Image.fromarray(frame), subject.canvas) for frame in frames])


def _lensbox(subject: Subject, frames: list[Tensor]) -> Tensor:
    return letterbox(frames, subject.canvas.height, subject.canvas.width).canvases


def _previous(subject: Subject, frames: list[Tensor]) -> Tensor:
    return torch.stack([subject.previous.letterbox(frame)[0] for frame in frames])


def _pillow(subject: Subject, picture: PIL.Image.Image) -> Tensor:
    return reference.canvas_of(picture, subject.canvas)[None]


def _opencv(subject: Subject) -> Resize:
    """Raises UnavailableError."""
    cv2 = load_opencv(subject.threads)

    def resize(pixels: Any) -> Tensor:
        return opencv_canvas(cv2, cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY), subject.canvas)[None]

    return resize


def _torch_uint8(subject: Subject, frames: Tensor) -> Tensor:
    """frames: uint8 [B, 3, H, W]."""
    return _torch(subject, _gray(frames).round_().to(torch.uint8))


def _torch_float(subject: Subject, frames: Tensor) -> Tensor:
    """frames: uint8 [B, 3, H, W]."""
    return _torch(subject, _gray(frames))


def _gray(frames: Tensor) -> Tensor:
    return (frames * _weights(frames.device)).sum(1, keepdim=True)


@cache
def _weights(device: torch.device) -> Tensor:
    """Made once: a CUDA graph cannot hold a copy from the host."""
    return torch.tensor([0.299, 0.587, 0.114], device=device).view(1, 3, 1, 1)


def _torch(subject: Subject, gray: Tensor) -> Tensor:
    """gray: [B, 1, H, W]."""
    canvas = subject.canvas
    place = reference.fit(gray.shape[3], gray.shape[2], canvas)
    small = F.interpolate(gray, [place.height, place.width], mode="bilinear", antialias=True)
    if small.dtype != torch.uint8:
        small = small.round_().clamp_(0, 255).to(torch.uint8)
    right, below = canvas.width - place.left - place.width, canvas.height - place.top - place.height
    return F.pad(small, [place.left, right, place.top, below])
