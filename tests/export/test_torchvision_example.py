"""`examples/torchvision_detector` gives what torchvision gives. Needs a torchvision that fits this torch."""

import shutil
import subprocess
import sys
from pathlib import Path

from torchvision_there import require_torchvision

import lensbox.export.cli
from lensbox.runtime import load_artifact

EXAMPLE = Path(__file__).parents[2] / "examples" / "torchvision_detector"
SCRIPT = Path(lensbox.export.cli.__file__).with_name("script_model.py")


def test_the_artifact_finds_what_torchvision_finds(tmp_path: Path) -> None:
    require_torchvision()
    folder = tmp_path / "example"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("*.pt", "__pycache__"))
    for command in (
        [str(SCRIPT), "--model", "ssdlite:ssdlite", "--output", "ssdlite.pt"],
        ["compare.py", "ssdlite.pt"],
    ):
        result = subprocess.run(
            [sys.executable, *command], cwd=folder, capture_output=True, text=True, check=False
        )
        assert result.returncode == 0, result.stdout + result.stderr
    assert " 0 have no counterpart" in result.stdout
    artifact = load_artifact(folder / "ssdlite.pt")
    assert artifact.self_test().passed
    assert len(artifact.classes) == 80
    assert all(schema.startswith("lensbox::") for schema in artifact.metadata.ops)
