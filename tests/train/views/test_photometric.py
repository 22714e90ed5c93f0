import torch
from ellipses import bounds
from torch import Tensor

from lensbox.train.views.photometric import (
    COVER_DRAWS,
    COVERS,
    LIGHT_DRAWS,
    light_from_a_side,
    paint_covers,
    photometric,
)

CANVAS = 256
BARE = 300.0  # a gray level that no cover has


def test_photometric_changes_content_only() -> None:
    generator = torch.Generator().manual_seed(0)
    content = torch.zeros(5, CANVAS, CANVAS)
    content[:, 40:200, 30:220] = 1
    canvas = content * 255 * torch.rand(content.shape, generator=generator)
    u = torch.rand(5, 16, generator=generator)
    noise = torch.randn(content.shape, generator=generator)
    changed = photometric(canvas, content, u, noise, 1.0)
    assert changed.min() >= 0
    assert changed.max() <= 255
    assert bool((changed[content == 0] == 0).all())
    assert (changed - canvas).abs()[content > 0].mean() > 5
    torch.testing.assert_close(photometric(canvas, content, u, noise, 0.0), canvas, atol=0.05, rtol=0)


def covers(views: int, used: float = 1) -> Tensor:
    """Draws for covers in every view, of which the first `used` are used."""
    u = torch.rand(views, COVER_DRAWS, generator=torch.Generator().manual_seed(4))
    u[:, 0] = 0
    switches = u[:, 1:].view(views, COVERS, 7)[..., 0]
    switches[:, :used], switches[:, used:] = 0, 0.9
    return u


def test_a_cover_lies_on_a_target_and_hides_less_than_half_of_it() -> None:
    bare = torch.full((200, CANVAS, CANVAS), BARE)
    boxes = torch.tensor([[100.0, 90.0, 160.0, 190.0], [20.0, 30.0, 60.0, 70.0], [0.0, 0.0, 0.0, 0.0]])
    painted = paint_covers(bare, torch.ones_like(bare), boxes.expand(200, 3, 4), covers(200), 1.0)
    hits, grays, shares = [0, 0], [], []
    for canvas in painted:
        levels = canvas[canvas != BARE]
        assert levels.min() == levels.max()
        grays.append(float(levels[0]))
        x1, y1, x2, y2 = bounds(canvas != BARE).int().tolist()
        assert len(levels) == (x2 - x1) * (y2 - y1)
        x, y = (x1 + x2) / 2, (y1 + y2) / 2
        (hit,) = (
            i for i, b in enumerate(boxes[:2]) if b[0] - 1 <= x <= b[2] + 1 and b[1] - 1 <= y <= b[3] + 1
        )
        hits[hit] += 1
        width, height = (boxes[hit, 2:] - boxes[hit, :2]).tolist()
        for length, side in ((x2 - x1, width), (y2 - y1, height)):
            assert 0.3 * side - 1 <= length <= 0.7 * side + 1
            shares.append(length / side)
    assert min(hits) > 60
    assert min(grays) < 10
    assert max(grays) > 245
    assert min(shares) < 0.35
    assert max(shares) > 0.65


def test_covers_spare_padding_other_views_and_views_without_targets() -> None:
    bare = torch.full((3, CANVAS, CANVAS), BARE)
    content = torch.ones_like(bare)
    content[0, :, :130] = 0
    targets = torch.tensor([[[100.0, 90.0, 160.0, 190.0]]] * 2 + [[[0.0, 0.0, 0.0, 0.0]]])
    u = covers(3, used=COVERS)
    u[1, 0] = 0.5
    painted = paint_covers(bare, content, targets, u, 0.5) != BARE
    assert painted[0].any()
    assert not painted[0, :, :130].any()
    assert not painted[1:].any()
    assert paint_covers(bare, torch.ones_like(bare), targets, u, 0.5)[0, :, :130].ne(BARE).any()


def lit(strength: float, angle: float, chance: float = 1.0) -> tuple[Tensor, Tensor]:
    canvas = torch.zeros(1, CANVAS, CANVAS)
    canvas[:, 60:200] = 100.0
    u = torch.tensor([[0.0, strength / 0.8, angle / 360]])
    assert u.shape[1] == LIGHT_DRAWS
    return canvas[0], light_from_a_side(canvas, u, chance)[0]


def test_light_rises_along_its_direction() -> None:
    canvas, light = lit(0.8, 0.0)
    ratio = (light[60:200] / 100).log()
    torch.testing.assert_close(
        ratio, torch.linspace(-0.8, 0.8, CANVAS + 1)[1:].sub(0.8 / 256).expand(140, -1)
    )
    assert bool((light[canvas == 0] == 0).all())
    assert bool((lit(0.8, 90.0)[1][60:200, 5].diff() > 0).all())  # 90 degrees: downwards
    corners = lit(0.8, 225.0)[1]
    assert corners[60, 0] > corners[60, 255] > corners[199, 255]


def test_light_keeps_the_range_the_mean_and_views_it_does_not_strike() -> None:
    for angle in range(0, 360, 30):
        light = lit(0.8, float(angle))[1]
        assert light.max() <= 100 * 2.2256
        assert abs(light[60:200].mean() / 100 - 1) < 0.12
    bright = torch.full((2, 8, 8), 250.0)
    u = torch.tensor([[0.0, 1.0, 0.3], [0.5, 1.0, 0.3]])
    light = light_from_a_side(bright, u, 0.5)
    assert light[0].max() == 255
    assert torch.equal(light[1], bright[1])
