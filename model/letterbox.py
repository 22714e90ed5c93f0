"""From a photograph to the canvas and back."""

import torch
import torch.nn.functional as F  # noqa: N812 (the name every torch user knows)
from torch import Tensor

from lensbox.model.checks import dtype_name


def letterbox(image: Tensor, canvas_size: int) -> tuple[Tensor, Tensor]:
    """Scales an image to fit a square gray canvas: aspect kept, centred, padded with zeros.

    image: uint8 [C, H, W] with C = 1 (gray), 3 (RGB) or 4 (RGBA, alpha ignored), H and W at least 1.
    Returns the canvas, uint8 [1, canvas_size, canvas_size], and the geometry, float32 [6]:
    (scale_x, scale_y, offset_x, offset_y, width, height) with canvas = original * scale + offset, in pixels.
    Resampling is bilinear with antialiasing (a triangle filter as wide as the reduction, as in Pillow).
    Raises ValueError for another dtype or shape.
    """
    _check_image(image)
    height, width = image.shape[1], image.shape[2]
    longest = max(height, width)
    # Rounded in integers so that every runtime agrees; a very thin image still keeps one pixel.
    new_height = max(1, (2 * height * canvas_size + longest) // (2 * longest))
    new_width = max(1, (2 * width * canvas_size + longest) // (2 * longest))
    left = (canvas_size - new_width) // 2
    top = (canvas_size - new_height) // 2

    gray = _luma(image)[None, None]
    # CUDA's antialiased resize keeps filter weights in shared memory and refuses ratios of several hundred:
    # sides 64 times as long as the canvas (16,384 px) are first averaged down by a whole factor.
    reduction = longest // (64 * canvas_size)
    if reduction > 1:
        window = [min(height, reduction), min(width, reduction)]
        gray = F.avg_pool2d(gray, window, ceil_mode=True, count_include_pad=False)
    gray = F.interpolate(gray, [new_height, new_width], mode="bilinear", align_corners=False, antialias=True)

    canvas = torch.zeros([1, canvas_size, canvas_size], dtype=torch.uint8, device=image.device)
    canvas[:, top : top + new_height, left : left + new_width] = gray[0].round().clamp(0, 255).to(torch.uint8)
    geometry = torch.tensor(
        [new_width / width, new_height / height, float(left), float(top), float(width), float(height)],
        dtype=torch.float32,
        device=image.device,
    )
    return canvas, geometry


def restore_boxes(boxes: Tensor, geometry: Tensor) -> Tensor:
    """Boxes of the canvas in the pixels of the original image, clipped to it.

    boxes: float32 [..., 4], xyxy in canvas pixels; geometry: float32 [6] from `letterbox`.
    Returns float32 [..., 4]. Raises ValueError for other shapes.
    """
    if boxes.dim() == 0 or boxes.shape[-1] != 4:
        raise ValueError(f"boxes must have the shape [..., 4], got {boxes.shape}")
    if geometry.dim() != 1 or geometry.shape[0] != 6:
        raise ValueError(f"geometry must have the shape [6], got {geometry.shape}")
    scale, offset, size = geometry[0:2].repeat(2), geometry[2:4].repeat(2), geometry[4:6].repeat(2)
    return torch.minimum(((boxes - offset) / scale).clamp(min=0.0), size)


def _check_image(image: Tensor) -> None:
    if image.dtype != torch.uint8:
        raise ValueError(f"image must be uint8, got {dtype_name(image)}")
    if image.dim() != 3 or image.shape[0] not in [1, 3, 4]:
        raise ValueError(f"image must have the shape [C, H, W] with C = 1, 3 or 4, got {image.shape}")
    if image.shape[1] < 1 or image.shape[2] < 1:
        raise ValueError(f"image must have at least one row and one column, got {image.shape}")


def _luma(image: Tensor) -> Tensor:
    """Gray levels, float32 [H, W], whole numbers: ITU-R BT.601 luma, as in JPEG and in Pillow's "L" mode."""
    if image.shape[0] == 1:
        return image[0].float()
    # Channel by channel: a large photograph never exists three times over in float32. Rounded, so that a gray
    # picture stored as RGB gives the very same canvas.
    return (image[0].float() * 0.299).add_(image[1], alpha=0.587).add_(image[2], alpha=0.114).round_()
