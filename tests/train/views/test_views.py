from typing import Any

import pytest
import torch
from torch import Tensor

from lensbox.model.config import CANVAS_SIZE
from lensbox.ops import letterbox
from lensbox.train.data.image_store import SIDE, ImageStore, StoreTensors, store_tensors
from lensbox.train.settings import TrainConfig
from lensbox.train.views.boxes import judge_boxes, map_boxes
from lensbox.train.views.draws import ViewCounts, draw, plain_views, view_counts
from lensbox.train.views.make_views import make_views
from lensbox.train.views.tiles import Tiles, letterbox_map, place_tiles, render_tiles

CONFIG = TrainConfig().replace(max_targets=8, max_ignored=8, photometric=0.0, batch_size=16)
SIZES = [(416, 300), (200, 416), (90, 70), (1, 50)]


def test_plain_views_are_whole_photographs_without_any_change(store: ImageStore) -> None:
    chances = {f"{name}_chance": 1.0 for name in ("soft", "light", "cover", "rotate")}
    config = CONFIG.replace(photometric=1.0, mosaic_share=0.5, batch_size=6, **chances)
    plain = plain_views(config)
    assert view_counts(plain) == ViewCounts(0, 6, 0)
    draws = draw(view_counts(plain), torch.zeros(()), "cpu")
    given = (store.tensors, draws, view_counts(plain), plain)
    views, tiles = make_views(*given), place_tiles(*given)
    shown, _ = render_tiles(store.tensors.images, store.tensors.sizes, tiles)
    # Gamma keeps black a hundredth of a gray level above 0.
    torch.testing.assert_close(views.images[:, 0], shown, atol=0.03, rtol=0)
    assert plain.batch_size == 6


@pytest.mark.parametrize("size", SIZES)
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
    pixels, content = render_tiles(stored, sizes, Tiles(torch.tensor([0]), scale, offset, rectangle))
    difference = (pixels[0].round() - canvases[0, 0].float()).abs()
    assert difference.max() <= 1
    # The op combines rows first for tall photographs, so different values are rounded between its passes.
    tall = height - geometry[0, 1] * height > 2 * (width - geometry[0, 0] * width)
    assert difference.mean() < (0.2 if tall else 0.02)
    white, _ = letterbox([torch.full_like(image, 255)], CANVAS_SIZE, CANVAS_SIZE)
    assert torch.equal(content[0], white[0, 0] != 0)


def boxes_store(boxes: Tensor, ignore: Tensor | None = None) -> StoreTensors:
    """One black photograph of 400 x 400 pixels with these boxes."""
    flags = torch.zeros(len(boxes)).bool() if ignore is None else ignore
    pixels = torch.zeros(1, SIDE, SIDE, dtype=torch.uint8)
    return store_tensors(pixels, torch.tensor([[400, 400]]), [boxes], [flags], torch.ones(1), 16)


FACE, LOW = (0.0, 10.0, 100.0, 90.0), (0.0, 0.0, 40.0, 44.0)


def below(by: float) -> tuple[float, ...]:
    """A box that begins `by` px below y = 300. The photograph ends at y = 400, and the canvas goes on."""
    return (10.0, 300.0 + by, 90.0, 400.0 + by)


@pytest.mark.parametrize(
    ("box", "flagged", "scale", "offset", "expected", "judgement"),
    [
        (FACE, False, (1.0, 1.0), (0.0, 0.0), [0, 10, 100, 90], "target"),
        (FACE, False, (1.0, 1.0), (206.0, 0.0), [206, 10, 256, 90], "target"),  # half of it in view
        (FACE, False, (1.0, 1.0), (208.0, 0.0), [208, 10, 256, 90], "ignored"),
        (FACE, False, (1.0, 1.0), (242.0, 0.0), None, "dropped"),
        # Padding shows nothing of a box.
        (below(30), False, (0.5, 0.5), (0.0, 10.0), [5, 175, 45, 210], "target"),
        (below(70), False, (0.5, 0.5), (0.0, 10.0), [5, 195, 45, 210], "ignored"),
        (below(30), False, (-0.5, 0.5), (200.0, 10.0), [155, 175, 195, 210], "target"),  # mirrored
        # Low and flagged boxes are ignored.
        (LOW, False, (0.1, 0.1), (0.0, 0.0), None, "ignored"),
        ((0.0, 0.0, 40.0, 46.0), True, (0.1, 0.1), (0.0, 0.0), None, "ignored"),
    ],
)
def test_box_is_target_ignored_or_dropped(
    box: Any, flagged: bool, scale: Any, offset: Any, expected: Any, judgement: str
) -> None:
    store = boxes_store(torch.tensor([box]), torch.tensor([flagged]))
    maps = (torch.tensor([row]) for row in (scale, offset, [0.0, 0.0, 256.0, 256.0]))
    boxes, found, ignored = judge_boxes(map_boxes(store, Tiles(torch.tensor([0]), *maps)), CONFIG)
    if expected is not None:
        assert boxes[0, 0].tolist() == expected
    assert (bool(found[0, 0]), bool(ignored[0, 0])) == (judgement == "target", judgement == "ignored")
    assert not (found | ignored)[0, 1:].any()


def test_crowds_keep_the_largest_and_ignore_the_rest() -> None:
    generator = torch.Generator().manual_seed(5)
    corner = torch.rand(40, 2, generator=generator) * 300
    side = 20 + 40 * torch.rand(40, 1, generator=generator)
    store = boxes_store(torch.cat([corner, corner + side], 1))
    counts = ViewCounts(0, 1, 0)
    draws = draw(counts, torch.tensor(1.0), "cpu")
    views = make_views(store, draws, counts, CONFIG.replace(max_targets=8, max_ignored=40))
    targets, ignored = (
        (boxes[..., 2:] - boxes[..., :2]).prod(-1) for boxes in (views.targets, views.ignored)
    )
    assert int((targets > 0).sum()) == 8
    assert int((ignored > 0).sum()) == 32
    assert ignored.max() < targets.min()


@pytest.mark.parametrize("key", ["soft_chance", "light_chance", "cover_chance", "rotate_chance"])
def test_a_change_alters_the_views_it_strikes_and_no_other(key: str, store: ImageStore) -> None:
    counts = view_counts(CONFIG)
    torch.manual_seed(2)
    draws = draw(counts, torch.tensor(1.0), "cpu")
    before, rare, often, always = (
        make_views(store.tensors, draws, counts, CONFIG.replace(**{key: chance}))
        for chance in (0.0, 1e-9, 0.5, 1.0)
    )
    assert all(torch.equal(a, b) for a, b in zip(before, rare, strict=True))
    changed = (always.images != before.images).flatten(1).any(1)
    assert int(changed.sum()) >= 0.8 * counts.views  # by chance, no cover is used, or all miss the pixels
    if key != "rotate_chance":
        assert torch.equal(always.targets, before.targets)
        assert torch.equal(always.ignored, before.ignored)
    struck = (often.images != before.images).flatten(1).any(1)
    assert 0 < int(struck[4:].sum()) < counts.views - 4  # not the mosaics: one tile of four is enough
    same = torch.stack([(often.images == x.images).flatten(1).all(1) for x in (before, always)]).any(0)
    assert bool(same[4:].all())


def test_soft_tiles_have_weaker_edges_and_the_same_mean() -> None:
    images = torch.randint(0, 256, (1, SIDE, SIDE), dtype=torch.uint8).expand(2, -1, -1)
    sizes = torch.full((2, 2), float(SIDE))
    maps = letterbox_map(sizes)
    (plain, soft), _ = render_tiles(images, sizes, Tiles(torch.arange(2), *maps, torch.tensor([1.0, 3.0])))
    assert soft.diff(dim=0).abs().mean() < 0.4 * plain.diff(dim=0).abs().mean()
    torch.testing.assert_close(soft.mean(), plain.mean(), atol=0.5, rtol=0)
