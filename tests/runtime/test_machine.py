"""The machine of a package. `tests/runtimes/test_formats.py` has files for other machines."""

from pathlib import Path

import pytest
from damaged_files import compiled_for, rewritten

from lensbox.common.errors import ArtifactError, DeviceError
from lensbox.runtime import load_artifact, machine


def test_rejects_other_devices(package_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DeviceError, match=r"device must be cpu, for which .*\.pt2 was compiled, got cuda"):
        load_artifact(package_path, "cuda")
    path = tmp_path / "changed.pt2"
    change = compiled_for(device="cuda", gpu_architecture="sm_90")
    path.write_bytes(rewritten(package_path.read_bytes(), change))
    monkeypatch.setattr(machine, "_gpu_architecture", lambda device: "sm_80")
    with pytest.raises(ArtifactError, match="a GPU of architecture sm_90; cuda has sm_80"):
        load_artifact(path, "cuda")
