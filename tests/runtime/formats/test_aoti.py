"""Packages of machine code: errors of files for other devices, and of other files.

`tests/runtimes/test_formats.py` has files for other machines.
"""

import io
from pathlib import Path

import pytest
import torch
from damaged_files import Change, compiled_for, rewritten, with_metadata

from lensbox.common.errors import ArtifactError, DeviceError
from lensbox.runtime import load_artifact, machine


class TestUnusableFiles:
    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (
                with_metadata(
                    lambda found: found["ops"].append("lensbox::padded_nms.new(Tensor x) -> Tensor")
                ),
                "needs the operator lensbox::padded_nms.new",
            ),
            (with_metadata(lambda found: found.pop("compiled")), "lacks the entry 'compiled'"),
            (with_metadata(lambda found: found.update(format_version=1)), "format version is 1"),
            (compiled_for(cpu_features=[1]), r"compiled.cpu_features\[0\] must be a valid string"),
        ],
    )
    def test_rejects_changed_packages(
        self, package_path: Path, tmp_path: Path, change: Change, message: str
    ) -> None:
        path = tmp_path / "changed.pt2"
        path.write_bytes(rewritten(package_path.read_bytes(), change))
        with pytest.raises(ArtifactError, match=rf"(?s)changed\.pt2 .*{message}"):
            load_artifact(path)

    def test_rejects_other_devices(
        self, package_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with pytest.raises(
            DeviceError, match=r"device must be cpu, for which .*\.pt2 was compiled, got cuda"
        ):
            load_artifact(package_path, "cuda")
        path = tmp_path / "changed.pt2"
        change = compiled_for(device="cuda", gpu_architecture="sm_90")
        path.write_bytes(rewritten(package_path.read_bytes(), change))
        monkeypatch.setattr(machine, "_gpu_architecture", lambda device: "sm_80")
        with pytest.raises(ArtifactError, match="a GPU of architecture sm_90; cuda has sm_80"):
            load_artifact(path, "cuda")

    def test_other_files(self, package_path: Path, tmp_path: Path) -> None:
        path, program = tmp_path / "other.pt2", io.BytesIO()
        torch.export.save(torch.export.export(torch.nn.ReLU(), (torch.zeros(2),)), program)
        package = package_path.read_bytes()
        for content in (package[:-1], package[:1000], program.getvalue()):
            path.write_bytes(content)
            with pytest.raises(ArtifactError, match=r"other\.pt2 is damaged"):
                load_artifact(path)

    def test_names_the_temporary_folder(
        self, package_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TMPDIR", str(tmp_path / "missing"))  # torch reads this variable anew
        with pytest.raises(ArtifactError, match=r"\.pt2 cannot be loaded .* TMPDIR must name a folder"):
            load_artifact(package_path)


def test_this_machine_runs_its_own_code() -> None:
    assert machine.this_cpu_features() == tuple(sorted(set(machine.this_cpu_features())))
    made = machine.this_machine(torch.device("cpu"))
    assert set(made.cpu_features) < set(machine.this_cpu_features())
    machine.require_machine("a file", made, torch.device("cpu"))
