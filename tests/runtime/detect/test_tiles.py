"""Tiles: the windows of photographs, and the merged detections, in cases worked out by hand."""

from typing import Any

import numpy as np
import PIL.Image
import pytest
import torch
from picture_files import encoded

from lensbox.common.errors import InputError
from lensbox.runtime import Artifact, Canvas, Detections, Photo, TileSpec
from lensbox.runtime.detect.tiles import merge_tiles, part_of, tile_batch, tile_windows, views_of

CANVAS = Canvas(192, 320, 3)


def cut_into_tiles(photo: Photo, canvas: Canvas, spec: TileSpec) -> list[Photo]:
    windows = tile_windows(photo.width, photo.height, canvas, spec)
    return views_of(part_of(photo, windows), windows)


def photo(width: int, height: int) -> Photo:
    return Photo.of(torch.zeros(1, height, width, dtype=torch.uint8))


@pytest.mark.parametrize(
    ("size", "spec", "columns", "rows"),
    [
        # 320 x 192 with steps of at most 240 x 144: (960 - 320) / 240 is 2.7, so 3 gaps of 213.3.
        ((960, 384), TileSpec(), [0, 213, 426, 640], [0, 96, 192]),
        ((640, 192), TileSpec(overlap=0), [0, 320], [0]),
        ((641, 192), TileSpec(overlap=0), [0, 160, 321], [0]),
        ((640, 100), TileSpec(640), [0], [0]),
        ((640, 100), TileSpec(10**400), [0], [0]),  # larger than any float
        ((200, 400), TileSpec(overlap=0.5), [0], [0, 69, 138, 208]),  # narrower than a tile
    ],
)
def test_tiles_cover_the_photograph(
    size: tuple[int, int], spec: TileSpec, columns: list[int], rows: list[int]
) -> None:
    whole = photo(*size)
    views = cut_into_tiles(whole, CANVAS, spec)
    if len(columns) == len(rows) == 1:
        assert [view.window for view in views] == [whole.window]
        return
    assert views[0].is_whole
    corners = [(x, y) for y in rows for x in columns]
    assert [view.window[:2] for view in views[1:]] == corners
    for view in views[1:]:
        x1, y1, x2, y2 = map(int, view.window)
        assert view.pixels.shape == (1, y2 - y1, x2 - x1)
        assert view.pixels.data_ptr() == whole.pixels[:, y1:, x1:].data_ptr()  # no copy
        assert x2 <= size[0]
        assert y2 <= size[1]
    assert max(view.window[2] for view in views) == size[0]
    assert max(view.window[3] for view in views) == size[1]


def test_a_part_holds_its_windows_and_no_more() -> None:
    whole = Photo.of(torch.arange(1200).view(1, 30, 40).to(torch.uint8))
    windows = [(5, 8, 15, 18), (12, 3, 22, 9)]
    part = part_of(whole, windows)
    assert (part.window, part.pixels.shape) == ((5, 3, 22, 18), (1, 15, 17))
    for view, (x1, y1, x2, y2) in zip(views_of(part, windows), windows, strict=True):
        assert torch.equal(view.pixels, whole.pixels[:, y1:y2, x1:x2])


def test_rejects_too_many_tiles_and_reduced_photographs() -> None:
    assert len(cut_into_tiles(photo(640, 192), CANVAS, TileSpec(overlap=0, whole=False))) == 2
    with pytest.raises(InputError, match=r"tiles must be at most 4096, got .* of size 1 "):
        cut_into_tiles(photo(640, 480), CANVAS, TileSpec(1))
    reduced = Photo(torch.zeros(1, 100, 100, dtype=torch.uint8), 200, 200, (0, 0, 200, 200))
    with pytest.raises(ValueError, match=r"full_size=True"):
        cut_into_tiles(reduced, CANVAS, TileSpec())


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({0: 0}, "a photograph must have sides from 1 to 16777216 pixels, got 0 x 480"),
        ({1: (1 << 63) - 1}, "a photograph must have sides from 1 to 16777216 pixels, got 640 x 92233720"),
        ({2: -(1 << 63)}, "a canvas must have sides from 1 to 16384 pixels, got -9223372036854775808 x 192"),
        ({4: -1}, "tiles must have a size of at least 1 pixel"),
        ({5: float("nan")}, "tiles must have an overlap of at least 0 and less than 1, got nan"),
        ({5: 1.0}, "tiles must have an overlap of at least 0 and less than 1, got 1"),
    ],
)
def test_windows_of_numbers_out_of_range(changed: dict[int, float], message: str) -> None:
    given = [640, 480, 320, 192, 0, 0.25, True]
    for position, value in changed.items():
        given[position] = value
    with pytest.raises(ValueError, match=message):
        torch.ops.lensbox_runtime.tile_windows(*given)


@pytest.mark.parametrize(
    "counts", [[1 << 62] * 4, [-1, 1, 0, 0], [3, -2, 0, 1], [(1 << 63) - 1] * 4, [1, 0, 0, 2]]
)
def test_counts_that_are_not_those_of_the_boxes(counts: list[int]) -> None:
    for number in (0, 2):
        boxes, scores = torch.zeros(number, 4), torch.zeros(number)
        with pytest.raises(ValueError, match="counts must be the numbers of boxes in each window"):
            torch.ops.lensbox_runtime.merge_tiles(boxes, scores, None, counts, [0] * 16, 9, 9, 0.5)


def test_tiles_may_find_more_than_the_candidates_of_an_image() -> None:
    count = 131_073
    boxes, scores = torch.tensor([0.0, 0, 5, 5]).repeat(count, 1), torch.linspace(0, 1, count)
    kept = torch.ops.lensbox_runtime.merge_tiles(boxes, scores, None, [count, 0], [0, 0, 9, 9] * 2, 9, 9, 0.5)
    assert kept.tolist() == [count - 1]
    with pytest.raises(ValueError, match="iou_threshold must be between 0 and 1, got nan"):
        torch.ops.lensbox_runtime.merge_tiles(
            boxes[:0], scores[:0], None, [0], [0, 0, 9, 9], 9, 9, float("nan")
        )


@pytest.mark.parametrize("side", [64, 256, 640, 16_384])
def test_tiles_of_a_batch_are_bounded_by_their_pixels(side: int) -> None:
    canvas = Canvas(side, side)
    assert tile_batch(torch.device("cpu"), canvas) == 8
    on_gpu = tile_batch(torch.device("cuda"), canvas)
    assert on_gpu >= 1
    assert on_gpu == 1 or on_gpu * side**2 <= 1 << 23 < (on_gpu + 1) * side**2


def found(*rows: tuple[float, ...], labels: list[int] | None = None) -> Detections[Any]:
    values = np.array(rows, np.float32).reshape(-1, 5)
    return Detections(values[:, :4], values[:, 4], None if labels is None else np.array(labels))


# Two tiles, x from 0 to 320 and from 240 to 560; boxes within 5 px of an inner edge are cut.
WINDOWS = tile_windows(560, 192, CANVAS, TileSpec(whole=False))
PART, WHOLE = (290.0, 50.0, 318.0, 90.0, 0.9), (290.0, 50.0, 340.0, 90.0, 0.6)
LARGER_PART = (240.0, 50.0, 330.0, 90.0, 0.6)
SHIFTED, SMALLER = (306.8, 50.0, 356.8, 90.0, 0.6), (290.0, 50.0, 317.0, 90.0, 0.6)
INSIDE, CORNER = (300.0, 60.0, 312.0, 80.0, 0.6), (0.0, 0.0, 30.0, 30.0, 0.5)
TWICE, BETTER = (250.0, 10.0, 300.0, 60.0, 0.5), (250.0, 10.0, 301.0, 60.0, 0.7)


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ([PART], [WHOLE], [WHOLE]),  # a whole box replaces its cut part
        ([PART], [(*WHOLE[:4], 0.4)], [PART]),  # unless its score is too low; NMS drops the whole box
        ([(260.0, 50.0, 320.0, 90.0, 0.9)], [LARGER_PART], [LARGER_PART]),  # the larger part stays
        ([PART], [], [PART]),  # nothing covers the part
        ([PART], [SHIFTED], [PART, SHIFTED]),  # covered by 40 %
        ([PART], [SMALLER], [PART]),  # a smaller box replaces nothing; NMS drops it
        ([PART], [INSIDE], [PART, INSIDE]),
        ([CORNER], [], [CORNER]),  # an edge of the photograph cuts nothing
        ([TWICE], [BETTER], [BETTER]),  # the same box in both tiles
        ([], [], []),
    ],
)
def test_merges_boxes_of_tiles(
    left: list[tuple[float, ...]], right: list[tuple[float, ...]], expected: list[tuple[float, ...]]
) -> None:
    merged = merge_tiles([found(*left), found(*right)], WINDOWS, 560, 192, 0.5)
    wanted = found(*expected)
    assert np.array_equal(merged.boxes, wanted.boxes)
    assert np.array_equal(merged.scores, wanted.scores)


def test_classes_do_not_suppress_each_other() -> None:
    merged = merge_tiles([found(PART, labels=[0]), found(WHOLE, labels=[1])], WINDOWS, 560, 192, 0.5)
    assert merged.labels is not None
    assert merged.labels.tolist() == [0, 1]


def test_each_window_must_have_detections() -> None:
    with pytest.raises(ValueError, match=r"counts must be .*got \[1\] for boxes \[1, 4\] and 2 windows"):
        merge_tiles([found(PART)], WINDOWS, 560, 192, 0.5)


def test_finds_small_objects_in_a_large_file(colors: Artifact) -> None:
    """Squares of 24 pixels: the whole photograph shows them at 6, the tiles, read at full size, at 24."""
    picture = PIL.Image.new("RGB", (1280, 768), (114, 114, 114))
    corners = [(0, 744), (40, 40), (300, 180), (628, 372), (1240, 730)]
    for x, y in corners:
        picture.paste((255, 0, 0), (x, y, x + 24, y + 24))
    files = [encoded(picture, quality=95)]
    (whole,), (tiled,) = (colors.detect_files(files, 1, 1, 0.7, 0.1, tiles=tiles) for tiles in (None, "auto"))
    assert isinstance(whole, Detections)
    assert isinstance(tiled, Detections)
    assert len(whole.boxes) == 0
    found = sorted(map(tuple, tiled.boxes[:, :2].round().tolist()))
    assert found == [(pytest.approx(x, abs=4), pytest.approx(y, abs=4)) for x, y in corners]
    two = colors.detect_image(picture.crop((0, 0, 640, 170)), 0.7, 0.1, TileSpec(overlap=0, whole=False))
    assert two.boxes.round().tolist() == [[pytest.approx(side, abs=4) for side in (40, 40, 64, 64)]]
    (refused,) = colors.detect_files(files, tiles=TileSpec(1))
    assert isinstance(refused, InputError)
