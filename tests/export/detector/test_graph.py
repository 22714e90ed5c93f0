"""Graphs of `detect`: what torch.export cannot trace, and own methods that such a file cannot hold."""

from pathlib import Path
from typing import Any

import pytest
from small_detectors import Brightest, Deciding, FittingItsOwnWay, LosingItsOwnWay

from lensbox.common.errors import ArtifactError
from lensbox.export import save_artifact

NO_GRAPH = r"(?s)torch.export cannot make a graph .*\(.*small_detectors\.py:\d+\)"


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (Deciding, "onnx", NO_GRAPH),
        (FittingItsOwnWay, "onnx", "own preprocess cannot be exported: an ONNX file holds only detect"),
        (FittingItsOwnWay, "aoti", "own preprocess cannot be exported: a package holds only detect"),
        (FittingItsOwnWay, "traced", "own preprocess cannot be traced"),
        (LosingItsOwnWay, "traced", "own loss cannot be traced"),
    ],
)
def test_rejects_what_a_format_cannot_hold(
    make: type[Brightest], kind: str, message: str, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"trace": True} if kind == "traced" else {"kind": kind}
    with pytest.raises(ArtifactError, match=message):
        save_artifact(make(), tmp_path / "detector", **options)
    assert not list(tmp_path.iterdir())
