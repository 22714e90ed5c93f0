"""Packages of machine code: who may load them, and which are refused."""

from pathlib import Path

import pytest
import torch
from altered_packages import Change, compiled_for, no_machine_code, with_metadata, without
from damaged_files import rewritten, with_bit_flipped
from signing_keys import KEY, public_pem, signature_of

from lensbox.common.errors import ArtifactError, DeviceError
from lensbox.runtime import compiled, load_artifact
from lensbox.runtime.artifact_loading import read_metadata
from lensbox.runtime.compiled import lacking_features


class TestWhoMayLoadIt:
    def test_only_those_who_trust_it(self, package_path: Path) -> None:
        with pytest.raises(ArtifactError, match=r"\.pt2 holds machine code.*--trusted"):
            load_artifact(package_path)
        # What it is can be asked without running anything of it.
        metadata = read_metadata(package_path.read_bytes(), "a file")
        assert metadata.compiled is not None
        assert metadata.compiled.device == "cpu"

    def test_a_signature_covers_it(self, package_path: Path, tmp_path: Path) -> None:
        data = package_path.read_bytes()
        path, key = tmp_path / "detector.pt2", tmp_path / "key.pub"
        path.write_bytes(data)
        key.write_bytes(public_pem(KEY))
        (tmp_path / "detector.pt2.sig").write_bytes(signature_of(data))
        assert load_artifact(path, trusted=True, public_key=key).self_test().passed
        path.write_bytes(with_bit_flipped(data, 100))
        with pytest.raises(ArtifactError, match="signature"):
            load_artifact(path, trusted=True, public_key=key)


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
            (with_metadata(lambda found: found.pop("compiled")), "there is no entry compiled"),
            (with_metadata(lambda found: found.update(format_version=1)), "format version is 1"),
            (compiled_for(device="tpu"), "compiled.device must be .cpu. or .cuda."),
            (compiled_for(cpu_features=[1]), r"compiled.cpu_features\[0\] must be a valid string"),
            (compiled_for(gpu_architecture="sm_90"), "compiled.gpu_architecture must be"),
            (without("/extra/lensbox.json"), "it holds no lensbox.json"),
            (without(".so"), r"holds no compiled code: it has no entry data/aotinductor/detect/\*\.so"),
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
            load_artifact(path, trusted=True)

    def test_a_device_of_another_kind(
        self, package_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with pytest.raises(
            DeviceError, match=r"device must be cpu, for which .*\.pt2 was compiled, got cuda"
        ):
            load_artifact(package_path, "cuda", trusted=True)
        path = tmp_path / "changed.pt2"
        change = compiled_for(device="cuda", gpu_architecture="sm_90")
        path.write_bytes(rewritten(package_path.read_bytes(), change))
        with pytest.raises(DeviceError, match="device must be cuda"):
            load_artifact(path, trusted=True)
        monkeypatch.setattr(compiled, "_gpu_architecture", lambda device: "sm_80")
        with pytest.raises(ArtifactError, match="a GPU of architecture sm_90; that of cuda is sm_80"):
            load_artifact(path, "cuda", trusted=True)

    @pytest.mark.parametrize("length", [-1, 1000])
    def test_cut_off(self, package_path: Path, tmp_path: Path, length: int) -> None:
        path = tmp_path / "cut.pt2"
        path.write_bytes(package_path.read_bytes()[:length])
        with pytest.raises(ArtifactError, match=r"cut\.pt2 is damaged"):
            load_artifact(path, trusted=True)

    def test_code_that_the_linker_refuses(self, package_path: Path, tmp_path: Path) -> None:
        path = tmp_path / "changed.pt2"
        path.write_bytes(rewritten(package_path.read_bytes(), no_machine_code))
        with pytest.raises(ArtifactError, match=r"changed\.pt2 cannot be loaded on cpu by torch"):
            load_artifact(path, trusted=True)

    def test_an_exported_program_of_torch(self, tmp_path: Path) -> None:
        path = tmp_path / "program.pt2"
        program = torch.export.export(torch.nn.ReLU(), (torch.zeros(2),))
        torch.export.save(program, path)
        with pytest.raises(ArtifactError, match=r"program\.pt2 is damaged or no artifact"):
            load_artifact(path, trusted=True)


def test_features_that_a_processor_lacks() -> None:
    assert lacking_features(["avx2", "avx512f", "fma"], ["fma", "avx2", "sse"]) == ["avx512f"]
    assert lacking_features([], []) == []


def test_the_features_of_this_machine() -> None:
    assert compiled.this_cpu_features() == tuple(sorted(set(compiled.this_cpu_features())))
    made = compiled.this_machine(torch.device("cpu"))
    assert set(made.cpu_features) < set(compiled.this_cpu_features())
    compiled.require_machine("a file", made, torch.device("cpu"))
