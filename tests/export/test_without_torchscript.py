"""Without TorchScript (Python 3.14 and later): the other formats are written and loaded."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from user_detectors import RedAndBlue

from lensbox.common.errors import ArtifactError
from lensbox.export.pipeline import save_artifact
from lensbox.runtime.loading import load_artifact

CALLS = ("script", "trace", "freeze", "save", "load")


def _forbidden(*_: object, **__: object) -> None:
    raise AssertionError("TorchScript was called")


@pytest.mark.parametrize("kind", ["onnx", pytest.param("aoti", marks=pytest.mark.exhaustive)])
def test_writes_and_loads_other_formats(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in CALLS:
        monkeypatch.setattr(torch.jit, name, _forbidden)
    path = tmp_path / "detector"
    metadata = save_artifact(RedAndBlue(), path, kind=kind)
    assert load_artifact(path).metadata.to_json() == metadata.to_json()


def test_rejects_torchscript(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 14, 0, "final", 0))
    with pytest.raises(ArtifactError, match=r"needs Python 3\.13 or older.* --format aoti or onnx"):
        save_artifact(RedAndBlue(), tmp_path / "detector.pt")


def test_imports_call_no_torchscript() -> None:
    """Turn the warnings of `torch.jit` into errors."""
    code = (
        "import lensbox.export.formats.torchscript, lensbox.model, lensbox.ops, lensbox.runtime.loading, "
        "lensbox.serve.cli, lensbox.train.cli"
    )
    warns = [f"-Werror:`torch.jit:{category}" for category in ("DeprecationWarning", "FutureWarning")]
    subprocess.run([sys.executable, *warns, "-c", code], check=True)
