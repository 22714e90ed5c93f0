"""Tiles: whole photographs are those of the letterbox, soft ones have weaker edges."""

import pytest
import torch

from lensbox.model.config import CANVAS_SIZE
from lensbox.ops import letterbox
from lensbox.train.photographs import SIDE, store_tensors
from lensbox.train.settings import TrainConfig
from lensbox.train.views.tiles import TILE_DRAWS, TileMaps, letterbox_map, place_tiles, render_tiles


@pytest.mark.parametrize("size", [(416, 300), (200, 416), (90, 70), (1, 50)])
def test_whole_views_equal_preprocess(size: tuple[int, int]) -> None:
    width, height = size
    generator = torch.Generator().manual_seed(0)
    image = torch.randint(0, 256, (1, height, width), dtype=torch.uint8, generator=generator)
    stored = torch.zeros(1, SIDE, SIDE, dtype=torch.uint8)
    stored[0, :height, :width] = image[0]
    sizes = torch.tensor([[float(width), float(height)]])
    scale, offset, rectangle = letterbox_map(sizes)
    canvases, geometry = letterbox([image], CANVAS_SIZE, CANVAS_SIZE)
    torch.testing.assert_close(torch.cat([scale[0], offset[0]]), geometry[0, :4])
    pixels, mask = render_tiles(stored, sizes, TileMaps(torch.tensor([0]), scale, offset, rectangle))
    difference = (pixels[0].round() - canvases[0, 0].float()).abs()
    assert difference.max() <= 1
    # The op combines rows first for tall photographs, so different values are rounded between its passes.
    tall = height - geometry[0, 1] * height > 2 * (width - geometry[0, 0] * width)
    assert difference.mean() < (0.2 if tall else 0.02)
    white, _ = letterbox([torch.full_like(image, 255)], CANVAS_SIZE, CANVAS_SIZE)
    assert torch.equal(mask[0], white[0, 0] != 0)


def test_soft_tiles_have_weaker_edges_and_the_same_mean() -> None:
    images = torch.randint(0, 256, (1, SIDE, SIDE), dtype=torch.uint8).expand(2, -1, -1)
    sizes = torch.full((2, 2), float(SIDE))
    maps = letterbox_map(sizes)
    (plain, soft), _ = render_tiles(images, sizes, TileMaps(torch.arange(2), *maps, torch.tensor([1.0, 3.0])))
    assert soft.diff(dim=0).abs().mean() < 0.4 * plain.diff(dim=0).abs().mean()
    torch.testing.assert_close(soft.mean(), plain.mean(), atol=0.5, rtol=0)


def test_a_face_does_not_outgrow_its_crop() -> None:
    pixels, sizes = torch.zeros(1, SIDE, SIDE, dtype=torch.uint8), torch.tensor([[400.0, 400.0]])
    face = torch.tensor([[50.0, 50.0, 350.0, 350.0]])
    store = store_tensors(pixels, sizes, [face], [torch.tensor([False])], torch.ones(1), 1)
    config = TrainConfig().replace(batch_size=64, mosaic_share=0.0, whole_share=0.0)
    draws = torch.rand(64, TILE_DRAWS, generator=torch.Generator().manual_seed(0))
    draws[:, 3] = 0.0  # a crop around the face
    sides = 300 * place_tiles(store, draws, torch.zeros(()), config).scale.abs()
    assert 0.85 * CANVAS_SIZE < sides.max() < 0.85 * CANVAS_SIZE * 1.06  # stretched by up to 5 %
