"""Packages of machine code: which are refused."""

from pathlib import Path

import pytest
import torch
from altered_packages import Change, compiled_for, no_machine_code, with_metadata, without
from damaged_files import rewritten

from lensbox.common.errors import ArtifactError, DeviceError
from lensbox.runtime import load_artifact, machine
from lensbox.runtime.machine import lacking_features


class TestUnusableFiles:
    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (compiled_for(torch_version="2.10.1"), "was compiled for torch 2.10.1; installed is"),
            (compiled_for(platform="linux-riscv64"), "was compiled for linux-riscv64; this machine is"),
            (
                compiled_for(cpu_features=["fpu9"]),
                "was compiled for a processor with fpu9, which this one lacks",
            ),
            (
                with_metadata(
                    lambda found: found["ops"].append("lensbox::padded_nms.new(Tensor x) -> Tensor")
                ),
                "needs the operator lensbox::padded_nms.new",
            ),
            (with_metadata(lambda found: found.pop("compiled")), "lacks the entry 'compiled'"),
            (with_metadata(lambda found: found.update(format_version=1)), "format version is 1"),
            (compiled_for(device="tpu"), "compiled.device must be .cpu. or .cuda."),
            (compiled_for(cpu_features=[1]), r"compiled.cpu_features\[0\] must be a valid string"),
            (compiled_for(gpu_architecture="sm_90"), "compiled.gpu_architecture must be"),
            (without("/extra/lensbox.json"), "it holds no lensbox.json"),
            (without(".so"), "cannot be loaded on cpu by torch"),
        ],
    )
    def test_what_does_not_fit(
        self,
        package_path: Path,
        tmp_path: Path,
        change: Change,
        message: str,
    ) -> None:
        path = tmp_path / "changed.pt2"
        path.write_bytes(rewritten(package_path.read_bytes(), change))
        with pytest.raises(ArtifactError, match=rf"(?s)changed\.pt2 .*{message}"):
            load_artifact(path)

    def test_a_device_of_another_kind(
        self, package_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with pytest.raises(
            DeviceError, match=r"device must be cpu, for which .*\.pt2 was compiled, got cuda"
        ):
            load_artifact(package_path, "cuda")
        path = tmp_path / "changed.pt2"
        change = compiled_for(device="cuda", gpu_architecture="sm_90")
        path.write_bytes(rewritten(package_path.read_bytes(), change))
        with pytest.raises(DeviceError, match="device must be cuda"):
            load_artifact(path)
        monkeypatch.setattr(machine, "_gpu_architecture", lambda device: "sm_80")
        with pytest.raises(ArtifactError, match="a GPU of architecture sm_90; cuda has sm_80"):
            load_artifact(path, "cuda")

    @pytest.mark.parametrize("length", [-1, 1000])
    def test_cut_off(self, package_path: Path, tmp_path: Path, length: int) -> None:
        path = tmp_path / "cut.pt2"
        path.write_bytes(package_path.read_bytes()[:length])
        with pytest.raises(ArtifactError, match=r"cut\.pt2 is damaged"):
            load_artifact(path)

    def test_code_that_the_linker_refuses(self, package_path: Path, tmp_path: Path) -> None:
        path = tmp_path / "changed.pt2"
        path.write_bytes(rewritten(package_path.read_bytes(), no_machine_code))
        with pytest.raises(ArtifactError, match=r"changed\.pt2 cannot be loaded on cpu by torch"):
            load_artifact(path)

    def test_an_exported_program_of_torch(self, tmp_path: Path) -> None:
        path = tmp_path / "program.pt2"
        program = torch.export.export(torch.nn.ReLU(), (torch.zeros(2),))
        torch.export.save(program, path)
        with pytest.raises(ArtifactError, match=r"program\.pt2 is damaged or no artifact"):
            load_artifact(path)


def test_features_that_a_processor_lacks() -> None:
    assert lacking_features(["avx2", "avx512f", "fma"], ["fma", "avx2", "sse"]) == ["avx512f"]
    assert lacking_features([], []) == []


def test_the_features_of_this_machine() -> None:
    assert machine.this_cpu_features() == tuple(sorted(set(machine.this_cpu_features())))
    made = machine.this_machine(torch.device("cpu"))
    assert set(made.cpu_features) < set(machine.this_cpu_features())
    machine.require_machine("a file", made, torch.device("cpu"))
