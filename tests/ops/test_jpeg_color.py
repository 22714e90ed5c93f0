"""RGB of JPEG planes, as a GPU computes it, against libjpeg-turbo: Pillow decodes the same planes."""

import io
import itertools

import numpy as np
import PIL.features
import PIL.Image
import pytest
import torch
from numpy.typing import NDArray

import lensbox.ops  # noqa: F401 (registers lensbox_jpeg)

SAMPLINGS = [(1, 1), (2, 1), (1, 2), (2, 2)]
BLACK = torch.zeros(3, 5, dtype=torch.uint8)


def _made(width: int, height: int, generator: np.random.Generator) -> NDArray[np.uint8]:
    coarse = generator.integers(0, 256, (height // 5 + 2, width // 5 + 2), np.uint8)
    smooth = np.asarray(PIL.Image.fromarray(coarse).resize((width, height), PIL.Image.Resampling.BICUBIC))
    noise = generator.integers(-30, 31, smooth.shape)
    return np.clip(smooth + noise, 0, 255).astype(np.uint8)


def _gray_file(plane: NDArray[np.uint8]) -> bytes:
    buffer = io.BytesIO()
    PIL.Image.fromarray(plane).save(buffer, "JPEG", quality=90)
    return buffer.getvalue()


def _decoded(file: bytes) -> torch.Tensor:
    return torch.from_numpy(np.array(PIL.Image.open(io.BytesIO(file))))


def _merged(files: list[bytes], width: int, height: int, across: int, down: int) -> bytes:
    """Make one color file of three gray ones, which become its scans: their pixels are its planes."""
    first = files[0]
    frame = first.index(b"\xff\xc0")
    components = bytes((3, 1, across << 4 | down, 0, 2, 0x11, 0, 3, 0x11, 0))
    header = b"\xff\xc0\0\x11\x08" + height.to_bytes(2, "big") + width.to_bytes(2, "big") + components
    merged = first[:frame] + header + first[frame + 13 : first.index(b"\xff\xda")]
    for number, file in enumerate(files, 1):
        scan = file.index(b"\xff\xda")
        merged += file[scan : scan + 5] + bytes((number,)) + file[scan + 6 : -2]
    return merged + b"\xff\xd9"


@pytest.mark.skipif(not PIL.features.check_feature("libjpeg_turbo"), reason="Pillow has another libjpeg")
@pytest.mark.parametrize(("across", "down"), SAMPLINGS)
def test_colors_are_those_of_libjpeg(across: int, down: int) -> None:
    generator = np.random.default_rng(28)
    sizes = [*itertools.product(range(1, 12), range(1, 12)), *generator.integers(1, 71, (120, 2)).tolist()]
    for width, height in sizes:
        chroma_size = -(-width // across), -(-height // down)
        files = [_gray_file(_made(*size, generator)) for size in ((width, height), chroma_size, chroma_size)]
        expected = _decoded(_merged(files, width, height, across, down))
        planes = [_decoded(file) for file in files]
        found = torch.ops.lensbox_jpeg.to_rgb(*planes, across, down)
        assert torch.equal(found, expected.permute(2, 0, 1)), (width, height)


def test_every_color_is_converted_as_libjpeg_does() -> None:
    """Blocks of one color each, for colors all over the cube."""
    if not PIL.features.check_feature("libjpeg_turbo"):
        pytest.skip("Pillow has another libjpeg")
    levels = torch.arange(0, 256, 5, dtype=torch.uint8)
    colors = torch.cartesian_prod(torch.arange(0, 256, 51, dtype=torch.uint8), levels, levels)
    wide = colors.T.reshape(3, 6, -1).repeat_interleave(8, 1).repeat_interleave(8, 2)
    planes = [wide[i].contiguous() for i in range(3)]
    files = [_gray_file(plane.numpy()) for plane in planes]
    expected = _decoded(_merged(files, wide.shape[2], wide.shape[1], 1, 1))
    found = torch.ops.lensbox_jpeg.to_rgb(*(_decoded(file) for file in files), 1, 1)
    assert torch.equal(found, expected.permute(2, 0, 1))


def test_wrong_planes_are_refused() -> None:
    chroma = torch.zeros(2, 3, dtype=torch.uint8)
    assert torch.ops.lensbox_jpeg.to_rgb(BLACK, chroma, chroma, 2, 2).shape == (3, 3, 5)
    with pytest.raises(ValueError, match=r"cb and cr must have the shape \[3, 3\], got \[2, 3\]"):
        torch.ops.lensbox_jpeg.to_rgb(BLACK, chroma, chroma, 2, 1)
    with pytest.raises(ValueError, match="across and down must be 1 or 2, got 4 and 1"):
        torch.ops.lensbox_jpeg.to_rgb(BLACK, chroma, chroma, 4, 1)
    with pytest.raises(ValueError, match=r"a plane must be uint8 \[H, W\] on the CPU"):
        torch.ops.lensbox_jpeg.to_rgb(BLACK.float(), chroma, chroma, 2, 2)
