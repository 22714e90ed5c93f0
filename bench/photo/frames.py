"""Time the way from RGB frames in memory to canvases."""

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import numpy as np
import PIL.Image
import torch
import torch.nn.functional as F  # noqa: N812 (the name every torch user knows)
from torch import Tensor

from lensbox.artifact.metadata import Canvas
from lensbox.bench.photo import reference
from lensbox.bench.photo.check import require_near, require_same_bytes
from lensbox.bench.photo.files import LENSBOX, OPENCV, PILLOW, load_opencv, opencv_canvas
from lensbox.bench.photo.photographs import photo_pixels
from lensbox.bench.runner import Case, MakeRun, Measure, Way, always
from lensbox.ops import letterbox

_PLANES = "lensbox, planes"
_UINT8, _FLOAT = "torch uint8, antialias", "torch float32, antialias"

Frames = Any  # in the form that a way takes
Resize = Callable[[Canvas, Frames], Tensor]  # returns canvases, uint8 [B, 1, H, W]

# Gray levels on average and at most: none; by rounding at other places; by another filter.
_EXACT, _ROUNDING, _OTHER_FILTER = (0.0, 0.0), (0.5, 2.0), (4.0, 128.0)


def frame_case(canvas: Canvas, width: int, height: int, threads: int) -> Case:
    """Compare the ways for one frame on the CPU."""
    pixels = photo_pixels(width, height)
    interleaved = torch.from_numpy(pixels).permute(2, 0, 1)
    planes = interleaved.contiguous()
    prepare = partial(_prepare, canvas, _expected([pixels], canvas))
    ways: list[tuple[str, Resize, Frames, tuple[float, float]]] = [
        (LENSBOX, _lensbox, [interleaved], _EXACT),
        (_PLANES, _lensbox, [planes], _EXACT),
        (PILLOW, _pillow, PIL.Image.fromarray(pixels), _EXACT),
        (OPENCV, partial(_opencv, threads), pixels, _OTHER_FILTER),
        (_UINT8, _torch_uint8, planes[None], _ROUNDING),
        (_FLOAT, _torch_float, planes[None], _ROUNDING),
    ]
    return Case(
        f"RGB frame {width} x {height} to a canvas",
        [
            Way(name, partial(prepare, resize, frames, tolerance), own=name in (LENSBOX, _PLANES))
            for name, resize, frames, tolerance in ways
        ],
        threads=threads,
        cpu_time=True,
    )


def batch_case(canvas: Canvas, width: int, height: int, count: int) -> Case:
    """Compare the ways for many frames that lie on the GPU."""
    distinct = [photo_pixels(width, height, variant) for variant in range(2)]
    frames = [np.roll(distinct[index % 2], 16 * index, axis=1) for index in range(count)]
    interleaved = [torch.from_numpy(frame).cuda().permute(2, 0, 1) for frame in frames]
    planes = [frame.contiguous() for frame in interleaved]
    prepare = partial(_prepare, canvas, _expected(frames, canvas))
    useful = count * (3 * width * height + canvas.width * canvas.height)
    measures: tuple[Measure, ...] = ("complete", "graph")
    ways: list[tuple[str, Resize, Frames, tuple[float, float]]] = [
        (LENSBOX, _lensbox, interleaved, _EXACT),
        (_PLANES, _lensbox, planes, _EXACT),
        (_FLOAT, _torch_float, torch.stack(planes), _ROUNDING),
    ]
    return Case(
        f"{count} RGB frames {width} x {height} to canvases",
        [
            Way(
                name,
                partial(prepare, resize, form, tolerance),
                measures,
                images=count,
                useful_bytes=useful,
                own=tolerance == _EXACT,
            )
            for name, resize, form, tolerance in ways
        ],
        "cuda",
    )


def _prepare(
    canvas: Canvas, expected: Tensor, resize: Resize, frames: Frames, tolerance: tuple[float, float]
) -> MakeRun:
    call = partial(resize, canvas, frames)
    if tolerance == _EXACT:
        require_same_bytes("canvas", call(), expected)
    else:
        require_near("canvas", call(), expected, *tolerance)
    return always(call)


def _expected(frames: Sequence[Any], canvas: Canvas) -> Tensor:
    return torch.stack([reference.canvas_of(PIL.Image.fromarray(frame), canvas) for frame in frames])


def _lensbox(canvas: Canvas, frames: list[Tensor]) -> Tensor:
    return letterbox(frames, canvas.height, canvas.width).canvases


def _pillow(canvas: Canvas, picture: PIL.Image.Image) -> Tensor:
    return reference.canvas_of(picture, canvas)[None]


def _opencv(threads: int, canvas: Canvas, pixels: Any) -> Tensor:
    cv2 = load_opencv(threads)
    return opencv_canvas(cv2, cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY), canvas)[None]


def _torch_uint8(canvas: Canvas, frames: Tensor) -> Tensor:
    """Resize frames, uint8 [B, 3, H, W], as uint8."""
    return _torch(canvas, _gray(frames).round_().to(torch.uint8))


def _torch_float(canvas: Canvas, frames: Tensor) -> Tensor:
    """Resize frames, uint8 [B, 3, H, W], as float32."""
    return _torch(canvas, _gray(frames))


def _gray(frames: Tensor) -> Tensor:
    return (frames * _weights(frames.device)).sum(1, keepdim=True)


@cache
def _weights(device: torch.device) -> Tensor:
    """Return the weights of red, green and blue, made once: a CUDA graph cannot copy from the host."""
    return torch.tensor([0.299, 0.587, 0.114], device=device).view(1, 3, 1, 1)


def _torch(canvas: Canvas, gray: Tensor) -> Tensor:
    """Fit gray frames, [B, 1, H, W], to canvases."""
    place = reference.fit(gray.shape[3], gray.shape[2], canvas)
    small = F.interpolate(gray, [place.height, place.width], mode="bilinear", antialias=True)
    if small.dtype != torch.uint8:
        small = small.round_().clamp_(0, 255).to(torch.uint8)
    right, below = canvas.width - place.left - place.width, canvas.height - place.top - place.height
    return F.pad(small, [place.left, right, place.top, below])
