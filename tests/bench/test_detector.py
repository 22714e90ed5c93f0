"""`lensbox bench detector` in its tiniest form."""

from collections.abc import Callable
from typing import Any

import pytest

from lensbox.bench.detector import benchmark, ways


@pytest.mark.parametrize("formats", ["TorchScript", pytest.param("all", marks=pytest.mark.exhaustive)])
def test_a_quick_run_writes_its_files(
    formats: str, quick_run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    if formats != "all":  # exporting all formats takes half a minute
        chosen = (ways.TORCHSCRIPT, ways.TORCHSCRIPT_NETWORK, "eager PyTorch", "package, float32")
        monkeypatch.setattr(
            benchmark,
            "all_ways",
            lambda *arguments: [way for way in ways.all_ways(*arguments) if way.name in chosen],
        )
    written = quick_run("detector", benchmark, "--batch", "1,2")
    assert "WRONG" not in written.printed
    assert "failed" not in written.printed
    rows = [row for row in written.rows if row["way"] == ways.TORCHSCRIPT]
    assert [row["case"] for row in rows] == ["1 canvas on cpu", "2 canvases on cpu"]
    assert all(float(row["images_per_second"]) > 0 for row in rows)
    assert "package, float32: not available: left out by --quick" in written.printed
    assert "ONNX file / its network, onnxruntime" in written.markdown
