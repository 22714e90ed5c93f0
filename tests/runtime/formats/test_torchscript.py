"""TorchScript files: a file without a method of artifacts is refused."""

import io
from pathlib import Path

import pytest
import torch
from torch import nn

from lensbox.runtime import ArtifactError, load_artifact
from lensbox.runtime.file.archive import open_file
from lensbox.runtime.file.metadata import METADATA_FILE
from lensbox.runtime.file.seal import sealed_zip
from lensbox.runtime.torchscript import quiet_torchscript


class OnlyDetect(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x

    @torch.jit.export
    def detect(self, x: torch.Tensor) -> torch.Tensor:
        return x


def test_names_missing_methods(artifact_path: Path, tmp_path: Path) -> None:
    metadata = open_file(artifact_path.read_bytes(), "a").metadata
    content = io.BytesIO()
    with quiet_torchscript():
        module = torch.jit.script(OnlyDetect())
        torch.jit.save(module, content, _extra_files={METADATA_FILE: metadata.to_json()})
    (tmp_path / "b.pt").write_bytes(sealed_zip(content.getvalue()))
    with pytest.raises(ArtifactError, match=r"b\.pt lacks the methods preprocess, restore, .*loss"):
        load_artifact(tmp_path / "b.pt")
