"""Packages of machine code: errors of other files."""

import io
from pathlib import Path

import pytest
import torch

from lensbox.runtime import ArtifactError, load_artifact


def test_rejects_a_program_of_torch_export(tmp_path: Path) -> None:
    program, path = io.BytesIO(), tmp_path / "other.pt2"
    torch.export.save(torch.export.export(torch.nn.ReLU(), (torch.zeros(2),)), program)
    path.write_bytes(program.getvalue())
    with pytest.raises(ArtifactError, match=r"other\.pt2 is not an artifact but a plain program"):
        load_artifact(path)


@pytest.mark.skipif(torch.__version__ < "2.13", reason="torch 2.11 unpacks elsewhere without the folder")
def test_names_the_temporary_folder(
    package_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "missing"))  # torch reads this variable anew
    with pytest.raises(ArtifactError, match=r"\.pt2 cannot be loaded .* TMPDIR must name a folder"):
        load_artifact(package_path)
