from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from lensbox.model.config import CANVAS_SIZE
from lensbox.ops import letterbox
from lensbox.train.data.image_store import SIDE, StoreTensors, load_images, store_tensors
from lensbox.train.data.labels import read_labels
from lensbox.train.settings import TrainConfig
from lensbox.train.views.boxes import judge_boxes, map_boxes
from lensbox.train.views.draws import ViewCounts, draw, plain_views, view_counts
from lensbox.train.views.make_views import make_views
from lensbox.train.views.tiles import Tiles, letterbox_map, place_tiles, render_tiles

CONFIG = TrainConfig().replace(max_targets=8, max_ignored=8, photometric=0.0, batch_size=24)
SIZES = [(416, 300), (200, 416), (90, 70), (416, 416), (300, 31), (1, 50)]


def square_store(count: int = 6, ignore_last: bool = False) -> StoreTensors:
    """Photographs that are black but for two white rectangles, the boxes to find."""
    generator = torch.Generator().manual_seed(3)
    pixels = torch.zeros(count, SIDE, SIDE, dtype=torch.uint8)
    boxes, sizes = [], []
    for index in range(count):
        width, height = [(400, 300), (220, 410), (416, 416)][index % 3]
        sizes.append((width, height))
        rows = []
        for slot in range(2):
            w, h = torch.randint(40, 80, (2,), generator=generator).tolist()
            x = int(torch.randint(0, width - w, (), generator=generator))
            y = slot * height // 2 + int(torch.randint(0, height // 2 - h, (), generator=generator))
            pixels[index, y : y + h, x : x + w] = 255
            rows.append([x, y, x + w, y + h])
        boxes.append(torch.tensor(rows).float())
    flags = [torch.tensor([False, ignore_last])] * count
    return store_tensors(pixels, torch.tensor(sizes), boxes, flags, torch.ones(count), 8)


def test_plain_views_are_whole_photographs_without_any_change() -> None:
    chances = {f"{name}_chance": 1.0 for name in ("soft", "light", "cover", "rotate")}
    config = CONFIG.replace(photometric=1.0, mosaic_share=0.5, batch_size=6, **chances)
    plain = plain_views(config)
    assert view_counts(plain) == ViewCounts(0, 6, 0)
    store = square_store()
    draws = draw(view_counts(plain), torch.zeros(()), "cpu")
    views = make_views(store, draws, view_counts(plain), plain)
    tiles = place_tiles(store, draws, view_counts(plain), plain)
    shown, _ = render_tiles(store.images, store.sizes, tiles)
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


@pytest.mark.parametrize("mosaic", [0.0, 1.0])
@pytest.mark.parametrize("kind", ["mosaic", "whole", "crop"])
def test_boxes_lie_on_their_pixels(kind: str, mosaic: float) -> None:
    """Bright pixels and boxes must be the same set in every view, flipped or not."""
    counts = ViewCounts(*(16 if name == kind else 0 for name in ("mosaic", "whole", "crop")))
    config = CONFIG.replace(keep_visible=0.01, ignore_visible=0.01, min_target_height=0.0)
    torch.manual_seed(11)
    views = make_views(square_store(), draw(counts, torch.tensor(mosaic), "cpu"), counts, config)
    assert views.images.shape == (16, 1, CANVAS_SIZE, CANVAS_SIZE)
    assert int((views.targets[..., 3] > 0).sum()) >= 16
    axis = torch.arange(CANVAS_SIZE) + 0.5
    for image, targets in zip(views.images[:, 0], views.targets, strict=True):
        inner, outer = torch.zeros(2, CANVAS_SIZE, CANVAS_SIZE, dtype=torch.bool)
        for x1, y1, x2, y2 in targets[targets[:, 3] > 0].tolist():
            for mask, margin in ((inner, 2.0), (outer, -2.0)):
                inside_x = (axis > x1 + margin) & (axis < x2 - margin)
                inside_y = (axis > y1 + margin) & (axis < y2 - margin)
                mask |= inside_y[:, None] & inside_x[None]
        if bool(inner.any()):
            assert image[inner].min() > 250
        # A sliver dropped for its size or visibility may shine outside of the boxes.
        assert (image[~outer] > 128).float().mean() < 0.01


def tiles_for(
    scale: Sequence[float],
    offset: Sequence[float],
    rectangle: Sequence[float] = (0.0, 0.0, 256.0, 256.0),
) -> Tiles:
    return Tiles(
        torch.tensor([0]), torch.tensor([scale]), torch.tensor([offset]), torch.tensor([list(rectangle)])
    )


def one_box_store(box: Sequence[float], ignore: bool = False) -> StoreTensors:
    return boxes_store(torch.tensor([box]), torch.tensor([ignore]))


def boxes_store(boxes: Tensor, ignore: Tensor | None = None, side: int = 400) -> StoreTensors:
    """One black photograph with these boxes."""
    flags = torch.zeros(len(boxes)).bool() if ignore is None else ignore
    pixels = torch.zeros(1, SIDE, SIDE, dtype=torch.uint8)
    return store_tensors(pixels, torch.tensor([[side, side]]), [boxes], [flags], torch.ones(1), 16)


@pytest.mark.parametrize(
    ("shift", "find", "ignore", "right"),
    [
        (0.0, True, False, 100.0),
        (206.0, True, False, 256.0),  # half of it in view
        (208.0, False, True, 256.0),
        (240.0, False, True, 256.0),  # 16 %
        (242.0, False, False, 256.0),
        (300.0, False, False, 256.0),
    ],
)
def test_visible_share_decides_between_target_ignored_and_dropped(
    shift: float, find: bool, ignore: bool, right: float
) -> None:
    store = one_box_store([0.0, 10.0, 100.0, 90.0])
    boxes, found, ignored = judge_boxes(map_boxes(store, tiles_for([1.0, 1.0], [shift, 0.0])), CONFIG)
    assert bool(found[0, 0]) == find
    assert bool(ignored[0, 0]) == ignore
    assert boxes[0, 0, 2] == right
    assert not found[0, 1:].any()
    assert not ignored[0, 1:].any()


@pytest.mark.parametrize(
    ("below", "find", "ignore"), [(30.0, True, False), (70.0, False, True), (90.0, False, False)]
)
@pytest.mark.parametrize("mirrored", [False, True])
def test_padding_shows_nothing_of_a_box(below: float, find: bool, ignore: bool, mirrored: bool) -> None:
    """A label that reaches beyond the photograph, 400 px high, ends with it, though the canvas goes on."""
    store = one_box_store([10.0, 300.0 + below, 90.0, 400.0 + below])
    tiles = tiles_for([-0.5 if mirrored else 0.5, 0.5], [200.0 if mirrored else 0.0, 10.0])
    boxes, found, ignored = judge_boxes(map_boxes(store, tiles), CONFIG)
    assert boxes[0, 0].tolist() == [
        155.0 if mirrored else 5.0,
        160 + below / 2,
        195.0 if mirrored else 45.0,
        210,
    ]
    assert (bool(found[0, 0]), bool(ignored[0, 0])) == (find, ignore)


def test_low_and_flagged_boxes_are_ignored() -> None:
    tiles = tiles_for([0.1, 0.1], [0.0, 0.0])
    _, found, ignored = judge_boxes(map_boxes(one_box_store([0.0, 0.0, 40.0, 44.0]), tiles), CONFIG)
    assert (bool(found[0, 0]), bool(ignored[0, 0])) == (False, True)
    _, found, ignored = judge_boxes(map_boxes(one_box_store([0.0, 0.0, 40.0, 46.0]), tiles), CONFIG)
    assert (bool(found[0, 0]), bool(ignored[0, 0])) == (True, False)
    _, found, ignored = judge_boxes(
        map_boxes(one_box_store([0.0, 0.0, 40.0, 46.0], ignore=True), tiles), CONFIG
    )
    assert (bool(found[0, 0]), bool(ignored[0, 0])) == (False, True)


def test_crowds_keep_the_largest_and_ignore_the_rest() -> None:
    generator = torch.Generator().manual_seed(5)
    corner = torch.rand(40, 2, generator=generator) * 300
    side = 20 + 40 * torch.rand(40, 1, generator=generator)
    store = boxes_store(torch.cat([corner, corner + side], 1))
    config = CONFIG.replace(max_targets=8, max_ignored=40)
    counts = ViewCounts(0, 1, 0)
    views = make_views(store, draw(counts, torch.tensor(1.0), "cpu"), counts, config)
    target_area = (views.targets[..., 2:] - views.targets[..., :2]).prod(-1)
    ignored = views.ignored[views.ignored[..., 3] > 0]
    assert int((views.targets[..., 3] > 0).sum()) == 8
    assert len(ignored) == 32
    assert (ignored[:, 2:] - ignored[:, :2]).prod(-1).max() < target_area.min()


def test_counts_split_a_batch() -> None:
    assert view_counts(TrainConfig().replace(batch_size=256)) == (51, 82, 123)
    assert view_counts(TrainConfig().replace(batch_size=1, mosaic_share=1.0)).tiles == 4
    assert view_counts(CONFIG).views == 24


CHANGES = ("soft_chance", "light_chance", "cover_chance", "rotate_chance")


@pytest.fixture
def faces_store(faces_folder: Path) -> StoreTensors:
    return load_images(read_labels([faces_folder])[0], "cpu", capacity=8).tensors


@pytest.mark.parametrize("key", CHANGES)
def test_a_change_alters_the_views_it_strikes_and_no_other(key: str, faces_store: StoreTensors) -> None:
    counts = view_counts(CONFIG)
    torch.manual_seed(2)
    draws = draw(counts, torch.tensor(1.0), "cpu")
    before = make_views(faces_store, draws, counts, CONFIG)
    rare = make_views(faces_store, draws, counts, CONFIG.replace(**{key: 1e-9}))
    always = make_views(faces_store, draws, counts, CONFIG.replace(**{key: 1.0}))
    often = make_views(faces_store, draws, counts, CONFIG.replace(**{key: 0.5}))
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
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (1, SIDE, SIDE), dtype=torch.uint8, generator=generator).expand(3, -1, -1)
    sizes = torch.full((3, 2), float(SIDE))
    scale, offset, rectangle = letterbox_map(sizes)
    tiles = Tiles(torch.arange(3), scale, offset, rectangle)
    plain, content = render_tiles(images, sizes, tiles)
    soft, soft_content = render_tiles(images, sizes, tiles._replace(softness=torch.tensor([1.0, 1.5, 3.0])))
    assert torch.equal(content, soft_content)
    assert torch.equal(soft[0], plain[0])
    edges = soft.diff(dim=1).abs().mean((1, 2))
    assert edges[1] < 0.7 * edges[0]
    assert edges[2] < 0.4 * edges[0]
    torch.testing.assert_close(soft.mean((1, 2)), plain.mean((1, 2)), atol=0.5, rtol=0)
