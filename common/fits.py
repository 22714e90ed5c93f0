"""The words for how an image becomes a canvas."""

from typing import Literal

Fit = Literal["letterbox", "stretch", "crop"]
Filter = Literal["nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"]
Order = Literal["gray", "rgb", "bgr"]
