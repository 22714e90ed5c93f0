"""AOTInductor packages: their content, and no file if the compiled code is wrong."""

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from user_detectors import Brightest, RedAndBlue

from lensbox.common.errors import ArtifactError
from lensbox.export.formats import aoti
from lensbox.export.pipeline import save_artifact
from lensbox.export.verify.reference import comparison_canvases
from lensbox.model import FaceDetector
from lensbox.runtime import load_artifact
from lensbox.runtime.formats.aoti import AotiModel


@pytest.fixture
def compiled_before(package_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the compiler by the code of an existing package of the same detector."""
    folder = tmp_path / "code"
    folder.mkdir()
    with zipfile.ZipFile(package_path) as archive:
        for name in archive.namelist():
            if "/aotinductor/" in name:
                (folder / name.split("/")[-1]).write_bytes(archive.read(name))
    files = [str(path) for path in folder.iterdir()]
    monkeypatch.setattr(aoti, "compile_graph", lambda *_: files)


def test_holds_no_source_and_no_local_path(package_path: Path) -> None:
    with zipfile.ZipFile(package_path) as archive:
        names = archive.namelist()
        texts = [archive.read(name) for name in names if name.endswith((".cpp", ".json"))]
    assert len(texts) > 2
    assert not any(b"#include" in text or b"/tmp/" in text for text in texts)
    assert any(name.endswith(".so") for name in names)


def test_metadata_of_a_package(package_path: Path, artifact_path: Path) -> None:
    package, script = load_artifact(package_path).metadata, load_artifact(artifact_path).metadata
    assert package.weights_sha256 == script.weights_sha256
    assert (package.score_threshold, package.iou_threshold) == (0.25, 0.4)
    assert package.methods == script.methods
    assert package.precision is None
    assert [schema.split("(")[0] for schema in package.ops] == [
        "lensbox::letterbox",
        "lensbox::masked_giou_loss",
        "lensbox::padded_nms.tensor_thresholds",
    ]


@pytest.mark.usefixtures("compiled_before")
@pytest.mark.parametrize(
    "batch", [7, *(pytest.param(size, marks=pytest.mark.exhaustive) for size in (1, 256))]
)
def test_rejects_code_that_is_wrong_for_one_batch_size(
    detector: FaceDetector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    """Move the boxes, as AOTInductor once did without an error."""
    run = AotiModel.run

    def wrong(self: Any, images: Tensor, *thresholds: float) -> Mapping[str, Tensor]:
        found = dict(run(self, images, *thresholds))
        return {**found, "boxes": found["boxes"] + 52 * (len(images) == batch)}

    monkeypatch.setattr(AotiModel, "run", wrong)
    path = tmp_path / "out" / "detector.pt2"
    path.parent.mkdir()
    with pytest.raises(ArtifactError, match=f"fails its self-test|does not find .* in batches of {batch}\\b"):
        save_artifact(detector, path, score_threshold=0.25, iou_threshold=0.4, kind="aoti")
    assert not list(path.parent.iterdir())


def test_tf32_needs_a_gpu(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="tf32 must be compiled for a GPU, got the device cpu"):
        save_artifact(Brightest(), tmp_path / "x.pt2", kind="aoti", dtype="tf32")


def test_names_a_missing_compiler(tmp_path: Path) -> None:
    from torch._inductor import config

    with (
        config.patch({"cpp.cxx": ("no-such-compiler",)}),
        pytest.raises(ArtifactError, match=r"--format aoti needs a C\+\+ compiler"),
    ):
        save_artifact(Brightest(), tmp_path / "detector.pt2", kind="aoti")


@pytest.mark.exhaustive
def test_labels_without_the_own_loss(tmp_path: Path) -> None:
    class LosingItsOwnWay(RedAndBlue):
        def loss(self, predictions: Tensor, targets: Tensor) -> Tensor:
            return (predictions - targets).abs().mean()

    detector = LosingItsOwnWay(side=8).eval()
    path = tmp_path / "red_and_blue.pt2"
    metadata = save_artifact(detector, path, kind="aoti")
    assert metadata.methods == ("preprocess", "detect", "restore", "detect_named")
    artifact = load_artifact(path)
    assert artifact.self_test().passed
    canvases = comparison_canvases(detector)[0][6:12]  # drawn scenes
    found, wanted = artifact.detect_named(canvases), detector.detect(canvases, 0.4, 0.3)
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        torch.testing.assert_close(found[name], value, rtol=1e-4, atol=0.01)
    assert int(found["counts"].sum()) > 0
    with pytest.raises(ValueError, match="loss must be computed with the detector's TorchScript artifact"):
        artifact.loss(torch.zeros(1, 4), torch.zeros(1, 4))
