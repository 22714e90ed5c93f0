"""Whole views, with and without changes of their pixels."""

import pytest
import torch

from lensbox.train.photographs import StoreTensors
from lensbox.train.settings import TrainConfig
from lensbox.train.views.make_views import draw, make_views, plain_views
from lensbox.train.views.tiles import ViewCounts, place_tiles, render_tiles, view_counts

CONFIG = TrainConfig().replace(max_targets=8, max_ignored=8, photometric=0.0, batch_size=16)


def test_plain_views_are_whole_photographs_without_any_change(store: StoreTensors) -> None:
    chances = {f"{name}_chance": 1.0 for name in ("soft", "light", "cover", "rotate")}
    config = CONFIG.replace(photometric=1.0, mosaic_share=0.5, batch_size=6, **chances)
    plain = plain_views(config)
    assert view_counts(plain) == ViewCounts(0, 6, 0)
    draws = draw(plain, torch.zeros(()))
    views = make_views(store, draws, plain)
    tiles = place_tiles(store, draws.tile, draws.mosaic_on, plain)
    shown, _ = render_tiles(store.images, store.sizes, tiles)
    # Gamma keeps black a hundredth of a gray level above 0.
    torch.testing.assert_close(views.images[:, 0], shown, atol=0.03, rtol=0)
    assert plain.batch_size == 6


@pytest.mark.parametrize("key", ["soft_chance", "light_chance", "cover_chance", "rotate_chance"])
def test_a_change_alters_the_views_it_strikes_and_no_other(key: str, store: StoreTensors) -> None:
    torch.manual_seed(2)
    draws = draw(CONFIG, torch.tensor(1.0))
    before, rare, often, always = (
        make_views(store, draws, CONFIG.replace(**{key: chance})) for chance in (0.0, 1e-9, 0.5, 1.0)
    )
    assert all(torch.equal(a, b) for a, b in zip(before, rare, strict=True))
    changed = (always.images != before.images).flatten(1).any(1)
    assert (
        int(changed.sum()) >= 0.8 * CONFIG.batch_size
    )  # by chance, no cover is used, or all miss the pixels
    if key != "rotate_chance":
        assert torch.equal(always.targets, before.targets)
        assert torch.equal(always.ignored, before.ignored)
    struck = (often.images != before.images).flatten(1).any(1)
    assert 0 < int(struck[4:].sum()) < CONFIG.batch_size - 4  # not the mosaics: one tile of four is enough
    same = torch.stack([(often.images == x.images).flatten(1).all(1) for x in (before, always)]).any(0)
    assert bool(same[4:].all())
