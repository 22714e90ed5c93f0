"""Specifications of tiles as text."""

import pytest

from lensbox.common.detect_options import TileSpec, tile_spec


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("auto", TileSpec()),
        ("512", TileSpec(512)),
        ("512,0.5", TileSpec(512, 0.5)),
        (TileSpec(9), TileSpec(9)),
    ],
)
def test_reads_a_specification(text: str | TileSpec, spec: TileSpec) -> None:
    assert tile_spec(text) == spec


@pytest.mark.parametrize(
    "text", ["", "big", "0", "-5", "512,1", "512,-0.1", "512,nan", "512,x", "512,", "1.5", "6_4", " 64"]
)
def test_refuses_a_specification(text: str) -> None:
    with pytest.raises(ValueError, match="tiles must"):
        tile_spec(text)
