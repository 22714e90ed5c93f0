"""At which scale a JPEG file is decoded."""

import math
import random

import pytest

from lensbox.runtime.images.jpeg import jpeg_reduction


def _stated(width: int, height: int, canvas_width: int, canvas_height: int, oversampling: int) -> int:
    """The rule as docs/artifact.md states it, in fractions and without any cleverness."""
    if oversampling == 0:
        return 1
    scale = min(canvas_width / width, canvas_height / height)
    if canvas_width * height <= canvas_height * width:
        needed = canvas_width, max(1, math.floor(height * canvas_width / width + 0.5))
    else:
        needed = max(1, math.floor(width * canvas_height / height + 0.5)), canvas_height
    assert max(abs(needed[0] - width * scale), abs(needed[1] - height * scale)) <= 1
    return max(
        r
        for r in (1, 2, 4, 8)
        if r == 1
        or (
            math.ceil(width / r) >= oversampling * needed[0]
            and math.ceil(height / r) >= oversampling * needed[1]
        )
    )


def test_the_rule_on_many_sizes() -> None:
    chance = random.Random(11)
    seen = set()
    for _ in range(2000):
        width, height = (round(2 ** chance.uniform(0, 14)) for _ in range(2))
        canvas_width, canvas_height = (chance.choice((1, 32, 255, 256, 640)) for _ in range(2))
        oversampling = chance.choice((0, 1, 2, 2, 2, 3))
        case = width, height, canvas_width, canvas_height, oversampling
        reduction = jpeg_reduction(*case)
        assert reduction == _stated(*case), case
        seen.add(reduction)
    assert seen == {1, 2, 4, 8}


@pytest.mark.parametrize(
    ("width", "height", "reduction"),
    [
        (4000, 3000, 4),  # 500 x 375 would be less than 512 x 384
        (4089, 3065, 8),  # 512 x 384: just enough, both rounded up
        (4088, 3066, 4),
        (1920, 1080, 2),
        (3000, 4000, 4),
        (1024, 768, 2),
        (1023, 768, 2),
        (1022, 768, 1),
        (512, 384, 1),
        (256, 256, 1),
        (20, 16_000, 8),  # 3 x 2000; the canvas needs 1 x 256
        (1, 16_000, 1),  # one column is never twice one column
        (1, 1, 1),
    ],
)
def test_the_canvas_of_the_detector(width: int, height: int, reduction: int) -> None:
    assert jpeg_reduction(width, height, 256, 256, 2) == reduction
    assert jpeg_reduction(height, width, 256, 256, 2) == reduction
    assert jpeg_reduction(width, height, 256, 256, 0) == 1
