"""TorchScript files: a file without a method that its metadata need is refused."""

from pathlib import Path

import pytest
from damaged_files import Values, rewritten, with_metadata

from lensbox.runtime import ArtifactError, load_artifact


def _with_classes(values: Values) -> None:
    expected = values["self_test"]["expected"]
    values["classes"], expected["labels"] = ["face"], [0] * len(expected["scores"])


def test_names_missing_methods(artifact_path: Path, tmp_path: Path) -> None:
    path = tmp_path / "changed.pt"
    path.write_bytes(rewritten(artifact_path.read_bytes(), with_metadata(_with_classes)))
    with pytest.raises(ArtifactError, match=r"changed\.pt lacks the methods detect_named"):
        load_artifact(path)
