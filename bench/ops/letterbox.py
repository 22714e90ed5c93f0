"""RGB frames in memory, fitted to gray canvases: beside Pillow and OpenCV on the CPU, PyTorch everywhere."""

from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import cache, partial
from typing import Any

import numpy as np
import PIL.Image
import torch
import torch.nn.functional as F  # noqa: N812 (the name every torch user knows)
from torch import Tensor

from lensbox.bench.measure import Case, UnavailableError, Way, WrongAnswerError
from lensbox.cli.timing import Call
from lensbox.ops import letterbox

WIDTH, HEIGHT = 1920, 1080
FRAMES = {"cpu": 1, "cuda": 64}
SIDE = 256  # of the canvas

Fit = Callable[[], Tensor]  # returns canvases, uint8 [B, 1, SIDE, SIDE]

# Gray levels on average and at most: none; by rounding at other places; by another filter.
_EXACT, _ROUNDING, _OTHER_FILTER = (0.0, 0.0), (0.5, 2.0), (4.0, 128.0)


def letterbox_cases(device: torch.device, quick: bool) -> Iterator[Case]:
    """Yield the ways to fit one frame on the CPU, or 64 frames that lie on a GPU."""
    count = FRAMES[device.type]
    pixels = _made_up_frame()
    frames = [np.roll(pixels, 16 * index, axis=1) for index in range(count)]
    interleaved = [torch.from_numpy(frame).to(device).permute(2, 0, 1) for frame in frames]
    planes = torch.stack([frame.contiguous() for frame in interleaved])
    expected = torch.stack([pillow_canvas(frame) for frame in frames])
    ways: list[tuple[str, Callable[[], Fit], tuple[float, float]]] = [
        ("lensbox", lambda: partial(_lensbox, interleaved), _EXACT),
        ("lensbox, planes", lambda: partial(_lensbox, list(planes)), _EXACT),
        ("torch float32, antialias", lambda: partial(_torch, planes), _ROUNDING),
    ]
    if device.type == "cpu":
        ways += [
            ("Pillow", lambda: lambda: pillow_canvas(pixels)[None], _EXACT),
            ("OpenCV, INTER_AREA", lambda: partial(_opencv, _load_opencv(), pixels), _OTHER_FILTER),
        ]

    def prepare(load: Callable[[], Fit], tolerance: tuple[float, float]) -> Call:
        call = load()
        require_near(call(), expected, *tolerance)
        return call

    title = f"letterbox, {count} RGB {WIDTH} x {HEIGHT} to gray {SIDE} x {SIDE}, {device.type.upper()}"
    found = [Way(name, partial(prepare, load, most), name.startswith("lensbox")) for name, load, most in ways]
    yield Case(title, found, device.type)


def place(width: int, height: int) -> tuple[int, int, int, int]:
    """Return width, height, left and top of a frame in the canvas, by the rule of docs/artifact.md."""
    scale = min(Fraction(SIDE, width), Fraction(SIDE, height))
    new_width, new_height = (max(1, int(side * scale + Fraction(1, 2))) for side in (width, height))
    return new_width, new_height, (SIDE - new_width) // 2, (SIDE - new_height) // 2


def pillow_canvas(pixels: Any) -> Tensor:
    """Return the canvas of a frame, uint8 [1, SIDE, SIDE]. pixels: uint8 [H, W, 3]."""
    image = PIL.Image.fromarray(pixels)
    width, height, left, top = place(*image.size)
    whole = PIL.Image.new("L", (SIDE, SIDE))
    whole.paste(image.convert("L").resize((width, height), PIL.Image.Resampling.BILINEAR), (left, top))
    return torch.from_numpy(np.array(whole))[None]


def require_near(canvases: Tensor, expected: Tensor, mean: float, most: float) -> None:
    """Raise WrongAnswerError if gray levels differ by more than `mean` on average or `most` anywhere."""
    if canvases.shape != expected.shape:
        raise WrongAnswerError(f"the canvas has the shape {list(canvases.shape)}, not {list(expected.shape)}")
    difference = (canvases.cpu().float() - expected.float()).abs()
    if not (float(difference.mean()) <= mean and float(difference.max()) <= most):
        raise WrongAnswerError(
            f"the canvas differs by {float(difference.mean()):.3g} gray levels on average and "
            f"{float(difference.max()):.3g} at most; {mean:g} and {most:g} are allowed"
        )


def _made_up_frame() -> Any:
    """Return smooth waves and noise, uint8 [HEIGHT, WIDTH, 3]."""
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
    waves = [127 + 90 * np.sin(x / 37 + phase) * np.cos(y / 53 - phase) for phase in (0, 1, 2)]
    noise = np.random.default_rng(0).normal(0, 12, (HEIGHT, WIDTH, 1))
    return (np.stack(waves, -1) + noise).clip(0, 255).astype(np.uint8)


def _lensbox(frames: list[Tensor]) -> Tensor:
    return letterbox(frames, SIDE, SIDE).canvases


def _load_opencv() -> Any:
    try:
        import cv2
    except ModuleNotFoundError as error:
        raise UnavailableError("the Python package 'opencv-python-headless' is not installed") from error
    cv2.setNumThreads(torch.get_num_threads())
    return cv2


def _opencv(cv2: Any, pixels: Any) -> Tensor:
    """Resize by the filter that averages areas, which is cheaper than Pillow's."""
    width, height, left, top = place(pixels.shape[1], pixels.shape[0])
    gray = cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY)
    whole = np.zeros((SIDE, SIDE), np.uint8)
    whole[top : top + height, left : left + width] = cv2.resize(
        gray, (width, height), interpolation=cv2.INTER_AREA
    )
    return torch.from_numpy(whole)[None, None]


def _torch(frames: Tensor) -> Tensor:
    """Resize frames, uint8 [B, 3, H, W], as float32."""
    width, height, left, top = place(frames.shape[3], frames.shape[2])
    gray = (frames * _weights(frames.device)).sum(1, keepdim=True)
    small = F.interpolate(gray, [height, width], mode="bilinear", antialias=True)
    small = small.round_().clamp_(0, 255).to(torch.uint8)
    return F.pad(small, [left, SIDE - left - width, top, SIDE - top - height])


@cache
def _weights(device: torch.device) -> Tensor:
    """Return the weights of red, green and blue, made once: a CUDA graph cannot copy from the host."""
    return torch.tensor([0.299, 0.587, 0.114], device=device).view(1, 3, 1, 1)
