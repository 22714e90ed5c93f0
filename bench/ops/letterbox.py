"""The cases of the letterbox: RGB frames in memory to gray canvases, and to the RGB ones of ultralytics."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import PIL.Image
import PIL.ImageOps
import torch
import torch.nn.functional as F  # noqa: N812 (the name every torch user knows)
from torch import Tensor

from lensbox.bench.measure import Case, WrongAnswerError, optional
from lensbox.common.canvas import Filter
from lensbox.ops import fit, letterbox

WIDTH, HEIGHT = 1920, 1080
SIDE = 256  # of the canvas
FITTED, TOP = 144, 56  # height of a fitted frame of 16:9, and its first row in the canvas
YOLO_SIDE, YOLO_FITTED, YOLO_TOP = 640, 360, 140

Fit = Callable[[], Tensor]  # returns canvases, uint8 [B, 1, SIDE, SIDE]
# The largest difference in gray levels: by rounding at other places, by another filter; none for other ways.
TOLERANCES = {"torch float32, antialias": 2, "OpenCV, INTER_AREA": 16, "lensbox, bilinear": 255}


def cases(group: str, device: torch.device, quick: bool) -> Iterator[Case]:
    """Yield the ways to fit one frame on the CPU, or 64 frames that lie on a GPU."""
    count = 64 if device.type == "cuda" else 1
    generator = torch.Generator().manual_seed(0)
    spots = 255 * torch.rand(count, 3, 54, 96, generator=generator)
    planes = F.interpolate(spots, [HEIGHT, WIDTH], mode="bilinear").to(torch.uint8)
    pixels = planes.permute(0, 2, 3, 1).contiguous()  # interleaved, as files are decoded
    expected = torch.stack([pillow_canvas(frame.numpy()) for frame in pixels])
    planes = planes.to(device)
    interleaved, apart = list(pixels.to(device).permute(0, 3, 1, 2)), list(planes)
    ways: dict[str, Callable[[], Fit]] = {
        "lensbox": lambda: lambda: letterbox(interleaved, SIDE, SIDE).canvases,
        "lensbox, planes": lambda: lambda: letterbox(apart, SIDE, SIDE).canvases,
        "torch float32, antialias": lambda: _torch(planes),
    }
    if device.type == "cpu":
        frame = pixels[0].numpy()
        ways["Pillow"] = lambda: lambda: pillow_canvas(frame)[None]
        ways["OpenCV, INTER_AREA"] = lambda: _opencv(frame)
    title = f"letterbox, {count} RGB {WIDTH} x {HEIGHT} to gray {SIDE} x {SIDE}, {device.type.upper()}"
    yield Case(title, device.type, ways, partial(check, expected))

    ways = {
        "lensbox": partial(_yolo, interleaved, "opencv_linear"),
        "lensbox, bilinear": partial(_yolo, interleaved, "bilinear"),
    }
    if device.type == "cpu":
        ways["OpenCV, INTER_LINEAR"] = lambda: _opencv_linear(frame)
    expected = _yolo(list(pixels.permute(0, 3, 1, 2)), "opencv_linear")()
    size = f"{WIDTH} x {HEIGHT} to {YOLO_SIDE} x {YOLO_SIDE}"
    title = f"ultralytics' letterbox, {count} RGB {size}, {device.type.upper()}"
    yield Case(title, device.type, ways, partial(check, expected))


def check(expected: Tensor, way: str, canvases: Tensor) -> None:
    """Raise WrongAnswerError if gray levels differ by more than the way may."""
    worst, most = int((canvases.cpu().int() - expected.int()).abs().max()), TOLERANCES.get(way, 0)
    if worst > most:
        raise WrongAnswerError(f"the canvas differs by up to {worst} gray levels, {most} are allowed")


def pillow_canvas(pixels: Any) -> Tensor:
    """Return the canvas of a frame, uint8 [1, SIDE, SIDE]. pixels: uint8 [H, W, 3]."""
    gray = PIL.Image.fromarray(pixels).convert("L")
    canvas = PIL.ImageOps.pad(gray, (SIDE, SIDE), PIL.Image.Resampling.BILINEAR)
    return torch.from_numpy(np.array(canvas))[None]


def _opencv(pixels: Any) -> Fit:
    """Resize by the filter that averages areas, which is cheaper than Pillow's."""
    cv2 = optional("cv2")
    cv2.setNumThreads(torch.get_num_threads())

    def fit() -> Tensor:
        gray = cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY)
        small = cv2.resize(gray, (SIDE, FITTED), interpolation=cv2.INTER_AREA)
        whole = cv2.copyMakeBorder(small, TOP, TOP, 0, 0, cv2.BORDER_CONSTANT)
        return torch.from_numpy(whole)[None, None]

    return fit


def _yolo(frames: Sequence[Tensor], name: Filter) -> Fit:
    """Make the canvases that ultralytics trains on, with "opencv_linear" to the byte."""
    return lambda: fit(frames, YOLO_SIDE, YOLO_SIDE, "ultralytics", name, fill=114).canvases


def _opencv_linear(pixels: Any) -> Fit:
    cv2 = optional("cv2")
    cv2.setNumThreads(torch.get_num_threads())

    def fitted() -> Tensor:
        small = cv2.resize(pixels, (YOLO_SIDE, YOLO_FITTED), interpolation=cv2.INTER_LINEAR)
        border = (YOLO_TOP, YOLO_TOP, 0, 0, cv2.BORDER_CONSTANT)
        whole = cv2.copyMakeBorder(small, *border, value=(114, 114, 114))
        return torch.from_numpy(whole).permute(2, 0, 1)[None]

    return fitted


def _torch(frames: Tensor) -> Fit:
    """Resize frames, uint8 [B, 3, H, W], as float32."""
    # Made once: a CUDA graph cannot copy from the host.
    weights = torch.tensor([0.299, 0.587, 0.114], device=frames.device).view(1, 3, 1, 1)

    def fit() -> Tensor:
        gray = (frames * weights).sum(1, keepdim=True)
        small = F.interpolate(gray, [FITTED, SIDE], mode="bilinear", antialias=True)
        return F.pad(small.round_().clamp_(0, 255).to(torch.uint8), [0, 0, TOP, TOP])

    return fit
