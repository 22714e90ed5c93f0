import torch
from picture_files import bounds
from torch import Tensor

from lensbox.train.views.photometric import COVER_DRAWS, COVERS, light_from_a_side, paint_covers, photometric

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
