"""Check the structure of bench's document, not its figures."""

from pathlib import Path

import pytest
import torch
from runner_answers import answer


@pytest.mark.parametrize(
    "options",
    [
        [],
        pytest.param(["--device", "cuda"], marks=pytest.mark.gpu),
        pytest.param(["--device", "cuda", "--capture"], marks=pytest.mark.gpu),
    ],
)
def test_document(artifact: Path, options: list[str]) -> None:
    asked = ["--batch-sizes", "1,3", "--callers", "2", "--seconds", "0.01", *options]
    document = answer("bench", "--artifact", artifact, *asked)
    assert document["device"].startswith("cuda" if options else "cpu")
    assert (document["threads"], document["capture"]) == (1, "--capture" in options)
    assert document["callers"] == 2
    assert document["libtorch"] == torch.__version__.split("+")[0]
    assert [entry["batch"] for entry in document["batches"]] == [1, 3]
    for entry in document["batches"]:
        assert set(entry) == {"batch", "whole", "detect"}
        for figures in (entry["whole"], entry["detect"]):
            assert figures["calls"] >= 1
            assert 0 < figures["p50_ms"] <= figures["p90_ms"] <= figures["p99_ms"]
            assert figures["images_per_s"] > 0
