"""`examples/detectors` are exported and loaded, where the packages are installed that they wrap."""

import sys
from pathlib import Path

import pytest
import torch

from lensbox.common.main import main
from lensbox.runtime import load_artifact

FOLDER = Path(__file__).parents[2] / "examples" / "detectors"


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("package", "model", "options"),
    [
        ("torchvision.models.detection", "fcos:fcos", ["--option", "size=128"]),
        ("torchvision.models.detection", "fcos:retinanet", ["--option", "size=128"]),
        ("ultralytics", "yolo11:yolo11", ["--option", "size=160"]),
        ("transformers", "rtdetr:rtdetr", ["--option", "size=160", "--batch", "2"]),
    ],
)
def test_is_exported_and_finds_what_it_finds_in_pytorch(
    package: str, model: str, options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(package, exc_type=ImportError)
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    torch.manual_seed(0)
    path = tmp_path / "detector.pt"
    assert main(["export", "--model", model, *options, "--output", str(path), "--no-parity"]) == 0
    artifact = load_artifact(path)
    assert artifact.self_test().passed
    photo = torch.randint(0, 256, (3, 120, 200), dtype=torch.uint8)
    assert len(artifact.detect_images([photo] * 3, 0.0)) == 3
