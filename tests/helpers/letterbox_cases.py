"""Images in every memory layout, and canvases computed with Pillow, for the tests of `fit`."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction

import cv2
import numpy as np
import PIL.Image
import torch
from torch import Tensor


@dataclass(frozen=True)
class Case:
    """The sizes of an image and of its canvas."""

    components: int
    height: int
    width: int
    canvas_height: int
    canvas_width: int
    channels: int = 1
    fill: int = 0

    def __str__(self) -> str:
        return f"{self.components}x{self.height}x{self.width}to{self.canvas_height}x{self.canvas_width}"

    def image(self) -> Tensor:
        return random_image(self.components, self.height, self.width)

    @property
    def canvas(self) -> tuple[int, int, int, int]:
        """Return the arguments of `letterbox` after the images."""
        return self.canvas_height, self.canvas_width, self.channels, self.fill


# Sizes that random ones seldom meet. (components, height, width, canvas height, canvas width)
CORNERS = [
    Case(1, 1, 1, 1, 1),
    Case(3, 1, 1, 256, 256),
    Case(4, 1, 1, 1, 300),
    Case(1, 256, 256, 256, 256),  # nothing to resample
    Case(3, 255, 257, 256, 256),
    Case(1, 16, 16, 16, 16, channels=3),
    Case(3, 32, 512, 32, 64),  # the size of a block of rows
    Case(3, 33, 513, 33, 65),
    Case(1, 1, 9000, 9, 256),
    Case(3, 9000, 1, 256, 9),
    Case(3, 2, 20000, 256, 20),  # 1:1000
    Case(4, 20000, 3, 20, 256, channels=3),
    Case(1, 3000, 3000, 3, 3),
    Case(3, 1100, 1100, 1, 1),
    Case(3, 1, 70000, 1, 1),
    Case(1, 70000, 1, 1, 1),
    Case(1, 3, 2, 700, 901),  # enlarged
    Case(3, 5, 7, 333, 1025, channels=3, fill=255),
    Case(4, 40, 1300, 1024, 2048),
    Case(3, 480, 640, 256, 256),
    Case(3, 1080, 1920, 256, 256),
    Case(3, 1920, 1080, 256, 256, channels=3, fill=114),
    Case(3, 2400, 1080, 256, 256),  # rows first
    Case(4, 2400, 1080, 256, 256, channels=3),
    Case(1, 2400, 1080, 256, 256),
]


def random_image(components: int, height: int, width: int) -> Tensor:
    """Return uint8 [C, H, W]. Half of the levels are 0 or 255, where sums could overflow a byte."""
    image = torch.randint(-128, 384, (components, height, width))
    return image.clamp(0, 255).to(torch.uint8)


def sizes_of(count: int, longest: int, seed: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield height, width, canvas height and width, evenly spread over magnitudes; the seed decides.

    Pictures have at most 300,000 pixels, before and after, so that thousands take seconds.
    """
    choose = random.Random(seed)
    while count > 0:
        sides = [int(longest ** choose.random()) for _ in range(4)]
        if choose.random() < 0.2:
            sides[choose.randrange(2)] = longest
        height, width, canvas_height, canvas_width = sides
        covering = scaled_size(height, width, canvas_height, canvas_width, "crop")
        if height * width <= 300_000 and covering[0] * covering[1] <= 300_000:
            count -= 1
            yield height, width, canvas_height, canvas_width


def random_cases(count: int, seed: int) -> Iterator[Case]:
    """Yield sides from 1 to 700, images of all kinds, canvases of both; the seed decides."""
    choose = random.Random(seed)
    for sizes in sizes_of(count, 700, seed):
        yield Case(choose.choice([1, 3, 4]), *sizes, choose.choice([1, 1, 3]), choose.choice([0, 114, 255]))


def scaled_size(height: int, width: int, canvas_height: int, canvas_width: int, fit: str) -> tuple[int, int]:
    """Return (width, height) of an image scaled to a canvas, computed in fractions."""
    if fit == "stretch":
        return canvas_width, canvas_height
    if fit.startswith("ultralytics"):  # in Python's words of its LetterBox
        ratio = min(canvas_height / height, canvas_width / width)
        if fit == "ultralytics_shrink":
            ratio = min(ratio, 1.0)
        return max(1, round(width * ratio)), max(1, round(height * ratio))
    scales = Fraction(canvas_height, height), Fraction(canvas_width, width)
    if fit == "crop":
        return int(width * max(scales)), int(height * max(scales))
    new_height, new_width = (max(1, int(side * min(scales) + Fraction(1, 2))) for side in (height, width))
    return new_width, new_height


def expected_fit(
    image: Tensor,
    height: int,
    width: int,
    fit: str = "letterbox",
    filter_name: str = "bilinear",
    order: str = "rgb",
    fill: int = 0,
) -> Tensor:
    """Return the canvas, uint8 [C, height, width], with Pillow's pixels, or OpenCV's for "opencv_linear".

    Pillow 13 resizes rows before columns if that is less work; earlier versions never do. Values are rounded
    in between. So each direction takes its own call, in the order of Pillow 13.
    """
    pixels = image[:3].permute(1, 2, 0).contiguous().numpy()  # without alpha: Pillow would multiply with it
    picture = PIL.Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)
    size = scaled_size(picture.height, picture.width, height, width, fit)
    picture = picture.convert("L" if order == "gray" else "RGB")
    if filter_name == "opencv_linear":
        picture = PIL.Image.fromarray(cv2.resize(np.asarray(picture), size, interpolation=cv2.INTER_LINEAR))
    else:
        resampling, fewer_rows = PIL.Image.Resampling[filter_name.upper()], picture.height - size[1]
        rows_first = fewer_rows > 0 and fewer_rows > 2 * (picture.width - size[0])
        one_direction = (picture.width, size[1]) if rows_first else (size[0], picture.height)
        picture = picture.resize(one_direction, resampling).resize(size, resampling)
    if fit == "crop":
        left, top = (round((side - shown) / 2) for side, shown in zip(size, (width, height), strict=True))
        picture = picture.crop((left, top, left + width, top + height))
    levels = np.array(picture).reshape(picture.height, picture.width, -1)
    if order == "bgr":
        levels = levels[..., ::-1].copy()
    canvas = torch.full((levels.shape[2], height, width), fill, dtype=torch.uint8)
    left, top = (width - picture.width) // 2, (height - picture.height) // 2
    canvas[:, top : top + picture.height, left : left + picture.width] = torch.from_numpy(levels).permute(
        2, 0, 1
    )
    return canvas


def pillow_letterbox(image: Tensor, height: int, width: int, channels: int = 1, fill: int = 0) -> Tensor:
    """Return the canvas of `letterbox`, uint8 [channels, height, width]."""
    return expected_fit(image, height, width, order="gray" if channels == 1 else "rgb", fill=fill)


def noise_like(image: Tensor, *shape: int) -> Tensor:
    return torch.randint(0, 256, shape, dtype=torch.uint8, device=image.device)


def interleaved(image: Tensor) -> Tensor:
    return image.permute(1, 2, 0).contiguous().permute(2, 0, 1)


def colours_of_rgba(image: Tensor) -> Tensor:
    """Return the first channels of interleaved 4-byte pixels; the memory ends within the last pixel."""
    channels, height, width = image.shape
    around = noise_like(image, 4 * (height * width - 1) + channels)
    return around.as_strided(image.shape, (1, 4 * width, 4)).copy_(image)


def channels_of_rows(image: Tensor) -> Tensor:
    """Return rows that hold their channels one after another, behind five other bytes."""
    rows = noise_like(image, image.shape[1], 5 + image.shape[0] * image.shape[2])
    view: Tensor = rows[:, 5:].unflatten(1, (image.shape[0], image.shape[2])).transpose(0, 1)
    return view.copy_(image)


# Each returns an image in another layout. Rows of crops begin at odd addresses; the expanded images repeat
# their first channel, row or column.
LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "planar": Tensor.contiguous,
    "interleaved": interleaved,
    "transposed": lambda image: image.mT.contiguous().mT,
    "interleaved transposed": lambda image: image.permute(2, 1, 0).contiguous().permute(2, 1, 0),
    "crop": lambda image: _inside(_around(image)).copy_(image),
    "interleaved crop": lambda image: _inside(interleaved(_around(image))).copy_(image),
    "colours of rgba": colours_of_rgba,
    "every other column": lambda image: noise_like(image, *image.shape, 2)[..., 0].copy_(image),
    "channels of rows": channels_of_rows,
    "expanded channels": lambda image: image[:1].contiguous().expand(image.shape),
    "expanded rows": lambda image: image[:, :1].contiguous().expand(image.shape),
    "expanded columns": lambda image: image[:, :, :1].contiguous().expand(image.shape),
}


def _around(image: Tensor) -> Tensor:
    return noise_like(image, image.shape[0], image.shape[1] + 3, image.shape[2] + 6)


def _inside(larger: Tensor) -> Tensor:
    return larger[:, 1:-2, 5:-1]
