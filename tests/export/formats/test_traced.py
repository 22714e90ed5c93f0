"""Traced detectors: code that TorchScript cannot compile, and networks with fixed batch sizes."""

import logging
import re
from pathlib import Path

import pytest
import torch
from programs import built_runner, runner_onnxruntime
from small_detectors import Changed, Named
from torch import Tensor

from lensbox.export import save_artifact
from lensbox.runtime import ArtifactError, load_artifact


class OfEight(Changed):
    """Take batches of 2 or 8 only."""

    def detect(self, images: Tensor, score_threshold: float, iou_threshold: float) -> Named:
        if images.shape[0] not in (2, 8):
            raise ValueError(f"images must be 2 or 8, got {images.shape[0]}")
        return super().detect(images, score_threshold, iou_threshold)


class Frozen(Changed):
    """Branch on pixels, which a trace cannot express."""

    def detect(self, images: Tensor, score_threshold: float, iou_threshold: float) -> Named:
        found = super().detect(images, score_threshold, iou_threshold)
        shift = 0.0 if images.float().std() > 70 else 5.0  # frozen
        return {**found, "boxes": found["boxes"] + shift}


def test_traces_detectors_that_cannot_be_compiled(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    save_artifact(Changed(dict), tmp_path / "traced.pt", 0.2, runner=built_runner())
    assert "traced, as TorchScript cannot compile it: " in caplog.text
    rows = re.findall(r"with (\S+) on cpu in batches of (\d+): \d\d+ detections .* 0 unmatched", caplog.text)
    assert "with C++ on cpu in batches of 1, 2, 7 and 32: " in caplog.text
    assert set(rows) == {(runtime, batch) for runtime in ("Python", "C++") for batch in ("1", "2", "7", "32")}
    with pytest.raises(ArtifactError, match="as TorchScript cannot compile it"):
        save_artifact(Changed(dict), tmp_path / "a.pt", trace=False)


@pytest.mark.parametrize(
    ("kind", "sizes"),
    [
        ("torchscript", (2, 8)),
        pytest.param("torchscript", (8,), marks=pytest.mark.exhaustive),
        pytest.param("onnx", (2,), marks=pytest.mark.exhaustive),
        pytest.param("aoti", (8,), marks=pytest.mark.exhaustive),
    ],
)
def test_networks_with_fixed_batches_take_any_batch(
    kind: str, sizes: tuple[int, ...], tmp_path: Path
) -> None:
    runner = built_runner() if kind != "onnx" or runner_onnxruntime() else None
    metadata = save_artifact(OfEight(dict), tmp_path / "a", 0.2, kind=kind, batches=sizes, runner=runner)
    assert metadata.batch == (None if kind == "torchscript" else sizes[0])
    artifact = load_artifact(tmp_path / "a")
    canvases = torch.randint(0, 256, (11, 3, 192, 320), dtype=torch.uint8)
    for batch in (0, 1, 3, 11):
        found = artifact.detect(canvases[:batch])
        assert found["boxes"].shape == (batch, 30, 4)


def test_names_the_line_that_a_trace_freezes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), pytest.raises(ArtifactError, match=r"fails its|does not find"):
        save_artifact(Frozen(dict), tmp_path / "a.pt", trace=True)
    assert "the trace may keep the values of these lines as constants" in caplog.text
    assert "# frozen" in caplog.text


def test_rejects_a_trace_with_a_constant_batch(tmp_path: Path) -> None:
    one_by_one = Changed(
        lambda found: {**found, "labels": torch.stack([row.clamp(max=1) for row in found["labels"]])}
    )
    with pytest.raises(ArtifactError, match=r"takes batches of 2 only, .*--batch 1,8"):
        save_artifact(one_by_one, tmp_path / "a.pt")
    save_artifact(one_by_one, tmp_path / "a.pt", batches=(2,))


def test_single_graph_formats_advise_one_batch_size(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"--batch 1 \(or another size\)"):
        save_artifact(OfEight(dict), tmp_path / "a.onnx", kind="onnx")


@pytest.mark.gpu
def test_a_trace_follows_its_device(tmp_path: Path) -> None:
    save_artifact(Changed(dict), tmp_path / "a.pt", 0.2, device="cuda")
    assert load_artifact(tmp_path / "a.pt", "cuda").self_test().passed
