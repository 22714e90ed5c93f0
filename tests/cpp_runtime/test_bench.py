"""bench: what its document holds. What the figures are is not asked here."""

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
    assert figures["peak_memory_mb"] is None or 20 < figures["peak_memory_mb"] < 100_000


def test_the_document(run: Run, artifact: Path) -> None:
    result = run("bench", "--artifact", artifact, "--batch-sizes", "1,3", "--callers", "2", *QUICK)
    assert result.code == 0, result.stderr
    document = result.json()
    assert document["device"] == "cpu"
    assert (document["threads"], document["capture"], document["callers"]) == (1, False, 2)
    assert document["libtorch"] == torch.__version__.split("+")[0]
    assert [entry["batch"] for entry in document["batches"]] == [1, 3]
    for entry in document["batches"]:
        assert set(entry) == {"batch", "whole", "detect", "module"}
        for way in ("whole", "detect", "module"):
            assert_ordered(entry[way])
        for way in ("whole", "detect"):
            ratio = entry[way]["p50_ms"] / entry["module"]["p50_ms"]
            assert entry[way]["p50_to_module"] == pytest.approx(ratio, abs=0.01)


def test_the_start_by_part(run: Run, artifact: Path) -> None:
    start = run("bench", "--artifact", artifact, *QUICK).json()["start"]
    assert set(start) == {
        "process_to_main_ms",
        "read_and_check_ms",
        "op_library_ms",
        "torch_load_ms",
        "other_loading_ms",
        "first_detect_ms",
        "to_first_boxes_ms",
    }
    parts = [value for key, value in start.items() if key != "to_first_boxes_ms"]
    assert min(parts) >= 0
    assert sum(parts) == pytest.approx(start["to_first_boxes_ms"], abs=2)


@pytest.mark.gpu
@pytest.mark.parametrize("options", [[], ["--capture"]])
def test_on_the_gpu(run: Run, artifact: Path, options: list[str]) -> None:
    arguments = [
        "bench",
        "--artifact",
        artifact,
        "--device",
        "cuda",
        "--batch-sizes",
        "1,8",
        "--callers",
        "2",
    ]
    result = run(*arguments, *QUICK, *options)
    assert result.code == 0, result.stderr
    document = result.json()
    assert document["capture"] == bool(options)
    for entry in document["batches"]:
        for way in ("whole", "detect", "module"):
            assert_ordered(entry[way])
            assert entry[way]["peak_gpu_memory_mb"] > 0
