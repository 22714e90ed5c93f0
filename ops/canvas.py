"""Convert coordinates between photographs and canvases; `ops.fit` computes the pixels.

A geometry is six numbers, (scale_x, scale_y, offset_x, offset_y, width, height), in pixels:
canvas point = photograph point * scale + offset. The photograph has width x height pixels.
"""

import torch
from torch import Tensor
from torch.jit import is_scripting  # type: ignore[attr-defined]  # (not in its __all__)

import lensbox.ops  # noqa: F401 (registers torch.ops.lensbox)


def check_canvases(images: Tensor, canvas: list[int], score_threshold: float, iou_threshold: float) -> None:
    """Check the arguments of a detector's `detect`, with the same messages in eager mode and in TorchScript.

    images: uint8 [B, *canvas]. Raise ValueError for another dtype or shape, and for thresholds outside of
    0..1.
    """
    if images.dtype != torch.uint8:
        raise ValueError(f"images must be uint8, got {dtype_name(images)}")
    if images.dim() != 4 or list(images.shape[1:]) != canvas:
        got = list(images.shape)
        raise ValueError(f"images must have the shape [B, C, H, W] with C, H, W = {canvas}, got {got}")
    check_threshold("score_threshold", score_threshold)
    check_threshold("iou_threshold", iou_threshold)


def dtype_name(tensor: Tensor) -> str:
    """Return 'float32' for torch.float32 and so on: TorchScript prints a dtype as a number."""
    for dtype, name in (
        (torch.float32, "float32"),
        (torch.float64, "float64"),
        (torch.float16, "float16"),
        (torch.bfloat16, "bfloat16"),
        (torch.int64, "int64"),
        (torch.int32, "int32"),
        (torch.bool, "bool"),
    ):
        if tensor.dtype == dtype:
            return name
    return "another dtype"


def check_threshold(name: str, value: float) -> None:
    """Raise ValueError unless 0 <= value <= 1; NaN fails. Skip during torch.export: values are unknown."""
    # Two `if`s: TorchScript skips compiling a block only if `is_scripting()` is its whole condition.
    if not is_scripting():  # noqa: SIM102
        if torch.compiler.is_exporting():
            return
    if not (value >= 0.0 and value <= 1.0):
        raise ValueError(f"{name} must be between 0 and 1, got {value}")


def fit_to_canvases(
    images: list[Tensor],
    windows: Tensor | None,
    height: int,
    width: int,
    channels: int = 1,
    fill: int = 0,
    fit: str = "letterbox",
    filter: str = "bilinear",  # noqa: A002 (as in `fit`)
    order: str = "rgb",
) -> tuple[Tensor, Tensor]:
    """Fit images of any sizes to canvases.

    images: at least one, uint8 [C, H, W] with C = 1 (gray), 3 (RGB) or 4 (RGBA, alpha ignored), any H and W
    from 1, of any strides. windows: float32 [B, 6], the part of a photograph that each image shows (see
    `geometry_of_windows`); None if each image is a whole photograph.
    Returns canvases, uint8 [B, channels, height, width], and their geometry, float32 [B, 6], in pixels of the
    photographs. fit, filter, order: see `lensbox.ops.fit`; order: of three channels. Raise ValueError,
    TypeError or RuntimeError for another dtype or shape.
    """
    order = "gray" if channels == 1 else order
    canvases, geometry = torch.ops.lensbox.fit(images, height, width, fit, filter, order, fill)
    if windows is not None:
        geometry = geometry_of_windows(geometry, windows)
    return canvases, geometry


def geometry_of_windows(geometry: Tensor, windows: Tensor) -> Tensor:
    """Return the geometry of photographs whose fitted images show a part, or another scale.

    geometry: float32 [B, 6], of the images. windows: float32 [B, 6]: image b shows the rectangle
    (x1, y1, x2, y2) of a photograph of (width, height) pixels, and may reach beyond the photograph: the
    last pixels of a JPEG file decoded at a quarter of its sides lie partly outside. Returns float32 [B, 6].
    Raise ValueError for windows of another shape.
    """
    shifted: Tensor = torch.ops.lensbox.geometry_of_windows(geometry, windows)
    return shifted


def cut_into_batches(images: Tensor, sizes: list[int]) -> list[Tensor]:
    """Cut images into batches of these sizes, largest first; black images fill the last batch.

    sizes: largest first; empty for any. There is at least one batch.
    """
    if len(sizes) == 0:
        return [images]
    parts: list[Tensor] = []
    start = 0
    while start < images.shape[0] or len(parts) == 0:
        left = images.shape[0] - start
        size = sizes[0]
        for smaller in sizes:
            if size > left:
                size = smaller
        part = images[start : start + size]
        missing = size - part.shape[0]
        if missing > 0:
            part = torch.cat([part, part.new_zeros([missing, part.shape[1], part.shape[2], part.shape[3]])])
        parts.append(part)
        start += size
    return parts


def restore_boxes(boxes: Tensor, geometry: Tensor) -> Tensor:
    """Return boxes of canvases in pixels of the photographs, clipped to the photographs.

    boxes: float32 [..., 4], xyxy in canvas pixels, with a geometry of [6]; or [B, ..., 4] with [B, 6].
    Returns the shape of `boxes`. Raise ValueError for other shapes.
    """
    restored: Tensor = torch.ops.lensbox.restore_boxes(boxes, geometry)
    return restored


def place_boxes(boxes: Tensor, geometry: Tensor) -> Tensor:
    """Return boxes of photographs in pixels of their canvases, not clipped: the inverse of `restore_boxes`.

    boxes: float32 [..., 4], xyxy in pixels of the photograph, with a geometry of [6]; or [B, ..., 4] with
    [B, 6]. Returns the shape of `boxes`. Raise ValueError for other shapes.
    """
    if boxes.dim() == 0 or boxes.shape[-1] != 4:
        raise ValueError(f"boxes must have the shape [..., 4], got {boxes.shape}")
    return place_points(boxes.unflatten(-1, [2, 2]), geometry).flatten(-2)


def restore_points(points: Tensor, geometry: Tensor) -> Tensor:
    """Return points of canvases in pixels of the photographs, outside of which half-hidden things may lie.

    points: float32 [..., 2], xy in canvas pixels, with a geometry of [6]; or [B, ..., 2] with [B, 6]. Returns
    the shape of `points`. Raise ValueError for other shapes.
    """
    restored: Tensor = torch.ops.lensbox.restore_points(points, geometry)
    return restored


def place_points(points: Tensor, geometry: Tensor) -> Tensor:
    """Return points of photographs in pixels of their canvases: the inverse of `restore_points`.

    points: float32 [..., 2], xy in pixels of the photograph, with a geometry of [6]; or [B, ..., 2] with
    [B, 6]. Returns the shape of `points`. Raise ValueError for other shapes.
    """
    if points.dim() == 0 or points.shape[-1] != 2:
        raise ValueError(f"points must have the shape [..., 2], got {points.shape}")
    if geometry.dim() == 2:
        geometry = geometry.view([geometry.shape[0]] + [1] * (points.dim() - 2) + [6])
    placed: Tensor = points * geometry[..., 0:2] + geometry[..., 2:4]
    return placed
