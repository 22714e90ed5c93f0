"""Photographs for the small detector."""

from pathlib import Path

import PIL.Image
import pytest

from lensbox.export.verify.pictures import draw_faces


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return photographs of different sizes, one of them a large JPEG file decoded at a smaller scale."""
    folder = tmp_path_factory.mktemp("photos")
    paths = []
    for seed, factor in enumerate((3, 5, 40)):
        pixels = draw_faces(seed).repeat_interleave(factor, 1).repeat_interleave(factor, 2)
        paths.append(folder / f"{seed}.{'jpg' if factor == 40 else 'png'}")
        PIL.Image.fromarray(pixels.permute(1, 2, 0).numpy()).save(paths[-1])
    return paths
