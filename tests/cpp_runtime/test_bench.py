"""Check the structure of bench's document, not its figures."""

from pathlib import Path
from typing import Any

import pytest
import torch
from cpp_runtime.running import Run

QUICK = ["--seconds", "0.01"]


def assert_ordered(figures: dict[str, Any]) -> None:
    assert figures["calls"] >= 1
    assert 0 < figures["p50_ms"] <= figures["p90_ms"] <= figures["p99_ms"]
    assert figures["images_per_s"] > 0


def test_document(run: Run, artifact: Path) -> None:
    result = run("bench", "--artifact", artifact, "--batch-sizes", "1,3", "--callers", "2", *QUICK)
    assert result.code == 0, result.stderr
    document = result.json()
    assert document["device"] == "cpu"
    assert (document["threads"], document["capture"], document["callers"]) == (1, False, 2)
    assert document["libtorch"] == torch.__version__.split("+")[0]
    assert [entry["batch"] for entry in document["batches"]] == [1, 3]
    for entry in document["batches"]:
        assert set(entry) == {"batch", "whole", "detect"}
        for way in ("whole", "detect"):
            assert_ordered(entry[way])


@pytest.mark.gpu
@pytest.mark.parametrize("options", [[], ["--capture"]])
def test_on_the_gpu(run: Run, artifact: Path, options: list[str]) -> None:
    arguments = ["--device", "cuda", "--batch-sizes", "1,8", "--callers", "2"]
    result = run("bench", "--artifact", artifact, *arguments, *QUICK, *options)
    assert result.code == 0, result.stderr
    document = result.json()
    assert document["capture"] == bool(options)
    for entry in document["batches"]:
        for way in ("whole", "detect"):
            assert_ordered(entry[way])
