"""Views are turned, covered, lit, and their tones changed as the definitions say."""

import math
from collections.abc import Sequence

import pytest
import torch
from picture_files import bounds, ellipse
from torch import Tensor

from lensbox.model.config import CANVAS_SIZE
from lensbox.train.photographs import SIDE, StoreTensors, store_tensors
from lensbox.train.settings import TrainConfig
from lensbox.train.views import changes
from lensbox.train.views.boxes import MappedBoxes, judge_boxes
from lensbox.train.views.changes import (
    COVER_DRAWS,
    COVERS,
    Turn,
    light_from_a_side,
    paint_covers,
    photometric,
    turn_boxes,
)
from lensbox.train.views.make_views import PIXEL_DRAWS, draw, make_views, plain_views

CONFIG = TrainConfig().replace(max_targets=8, max_ignored=8, photometric=0.0, rotate_chance=1.0)


@pytest.mark.parametrize(
    ("beyond", "visible", "find", "ignore"),
    [
        (-2.0, 1.0, True, False),  # 55 %
        (2.0, 1.0, False, True),  # 45 %
        (-2.0, 0.8, False, True),  # 55 % of 80 %
        (13.0, 1.0, False, True),  # 17.5 %
        (15.0, 1.0, False, False),
    ],
)
def test_the_share_in_view_after_a_turn_decides(
    beyond: float, visible: float, find: bool, ignore: bool
) -> None:
    """A circle of 40 px, turned from the upper right to where its centre is `beyond` the right side."""
    far = (128 + beyond) / math.sqrt(2)
    box = [128 + far - 20, 128 - far - 20, 128 + far + 20, 128 - far + 20]
    boxes, half = torch.tensor([[box]]), torch.tensor([math.sqrt(0.5)])  # cosine and sine of 45 degrees
    turn = Turn(torch.ones(1).bool(), half, half)
    part, share = turn_boxes(boxes, boxes, torch.tensor([[visible]]), turn)
    yes = torch.ones(1, 1).bool()
    judged, found, ignored = judge_boxes(MappedBoxes(boxes, part, share, yes, yes), CONFIG)
    assert (bool(found), bool(ignored)) == (find, ignore)
    assert judged.max() <= CANVAS_SIZE


def ellipse_store(*photographs: Sequence[Sequence[float]]) -> StoreTensors:
    """Photographs of 400 x 400 pixels, of one or more white ellipses each."""
    pixels = torch.zeros(len(photographs), SIDE, SIDE, dtype=torch.uint8)
    for shown, boxes in zip(pixels, photographs, strict=True):
        shown[:400, :400] = torch.stack([ellipse(box, 400, 400) for box in boxes]).amax(0)
    sizes = torch.tensor([[400, 400]] * len(photographs))
    flags = [torch.zeros(len(boxes)).bool() for boxes in photographs]
    chances = torch.ones(len(photographs))
    return store_tensors(pixels, sizes, list(map(torch.tensor, photographs)), flags, chances, 8)


@pytest.mark.parametrize(("mosaic", "rotate_chance"), [(0.0, 1.0), (1.0, 0.0), (1.0, 1.0)])
def test_boxes_lie_on_their_pixels(mosaic: float, rotate_chance: float) -> None:
    # Targets are whole here: the bounds of a part are wider than its pixels.
    config = CONFIG.replace(
        keep_visible=0.999,
        ignore_visible=0.0,
        min_target_height=0.0,
        rotate_chance=rotate_chance,
        batch_size=17,
        mosaic_share=0.35,
        whole_share=0.55,
    )
    store = ellipse_store([[150.0, 100, 220, 200]], [[250.0, 200, 290, 260]], [[30.0, 40, 100, 80]])
    torch.manual_seed(7)
    views = make_views(store, draw(config, torch.tensor(mosaic)), config)
    checked = 0
    for image, targets, ignored in zip(views.images[:, 0], views.targets, views.ignored, strict=True):
        unknown = image > 128
        for box in torch.cat([targets[targets[:, 3] > 0], ignored[ignored[:, 3] > 0]]):
            wider = (box + torch.tensor([-2, -2, 2, 2])).round().clamp(0, CANVAS_SIZE)
            x1, y1, x2, y2 = wider.long().tolist()
            white = torch.zeros_like(unknown)
            white[y1:y2, x1:x2] = image[y1:y2, x1:x2] > 128
            unknown &= ~white
            if bool((targets == box).all(1).any()):
                torch.testing.assert_close(bounds(white), box, atol=2.0, rtol=0)
                checked += 1
        assert not unknown.any()
    assert checked >= 8


def test_a_box_rotated_out_of_view_takes_no_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "LARGEST_TURN", 45.0)
    # The larger face is in the upper right corner, where a turn by 45 degrees takes it out of view.
    store = ellipse_store([[306.0, 0.0, 400.0, 94.0], [170.0, 170.0, 230.0, 230.0]])
    config = plain_views(CONFIG.replace(max_targets=1, batch_size=1))
    draws = draw(config, torch.tensor(1.0))
    draws.tile[:, 1] = 0.9  # not mirrored
    turning = draws.view.split_with_sizes(PIXEL_DRAWS, dim=1)[1]
    turning[:, 0], turning[:, 1] = 0.0, 1.0
    (straight,) = make_views(store, draws, config).targets[0]
    (turned_target,) = make_views(store, draws, config.replace(rotate_chance=1.0)).targets[0]
    torch.testing.assert_close(straight, torch.tensor([306.0, 0.0, 400.0, 94.0]) * 0.64)
    torch.testing.assert_close(turned_target, torch.tensor([170.0, 170.0, 230.0, 230.0]) * 0.64)


CANVAS = 256
BARE = 300.0  # a gray level that no cover has


def test_photometric_changes_content_only() -> None:
    generator = torch.Generator().manual_seed(0)
    mask = torch.zeros(5, CANVAS, CANVAS)
    mask[:, 40:200, 30:220] = 1
    canvas = mask * 255 * torch.rand(mask.shape, generator=generator)
    u = torch.rand(5, 16, generator=generator)
    noise = torch.randn(mask.shape, generator=generator)
    changed = photometric(canvas, mask, u, noise, 1.0)
    assert 0 <= changed.min() < changed.max() <= 255
    assert not changed[mask == 0].any()
    assert (changed - canvas).abs()[mask > 0].mean() > 5
    torch.testing.assert_close(photometric(canvas, mask, u, noise, 0.0), canvas, atol=0.05, rtol=0)


def covers(views: int) -> Tensor:
    """Draws for covers in every view, of which one is used."""
    u = torch.rand(views, COVER_DRAWS, generator=torch.Generator().manual_seed(4))
    u[:, 0] = 0
    switches = u[:, 1:].view(views, COVERS, 7)[..., 0]
    switches[:, :1], switches[:, 1:] = 0, 0.9
    return u


def test_a_cover_lies_on_a_target_and_hides_less_than_half_of_it() -> None:
    bare = torch.full((40, CANVAS, CANVAS), BARE)
    boxes = torch.tensor([[100.0, 90.0, 160.0, 190.0], [20.0, 30.0, 60.0, 70.0], [0.0, 0.0, 0.0, 0.0]])
    painted = paint_covers(bare, torch.ones_like(bare), boxes.expand(40, 3, 4), covers(40), 1.0)
    places = torch.stack([bounds(canvas != BARE) for canvas in painted])
    sides, centers = places[:, 2:] - places[:, :2], (places[:, :2] + places[:, 2:]) / 2
    assert torch.equal((painted != BARE).sum((1, 2)), sides.prod(1).long())  # rectangles
    hit = (centers[:, 0] > 80).logical_not().long()
    target = boxes[hit]
    assert bool(((centers >= target[:, :2] - 1) & (centers <= target[:, 2:] + 1)).all())
    assert 8 < int(hit.sum()) < 32
    whole = target[:, 2:] - target[:, :2]
    assert bool(((sides >= 0.3 * whole - 1) & (sides <= 0.7 * whole + 1)).all())


def lit(angle: float) -> Tensor:
    """Return a gray level of 100 between two rows of padding, lit with the greatest strength."""
    canvas = torch.zeros(1, CANVAS, CANVAS)
    canvas[:, 60:200] = 100.0
    return light_from_a_side(canvas, torch.tensor([[0.0, 1.0, angle / 360]]), 1.0)[0]


def test_light_rises_along_its_direction() -> None:
    light = lit(0.0)
    expected = torch.linspace(-0.8, 0.8, CANVAS + 1)[1:].sub(0.8 / 256).expand(140, -1)
    torch.testing.assert_close((light[60:200] / 100).log(), expected)
    assert not light[:60].any()
    assert bool((lit(90.0)[60:200, 5].diff() > 0).all())  # 90 degrees: downwards
    corners = lit(225.0)
    assert corners[60, 0] > corners[60, 255] > corners[199, 255]
    bright = light_from_a_side(torch.full((1, 8, 8), 250.0), torch.tensor([[0.0, 1.0, 0.3]]), 0.5)
    assert bright.max() == 255
