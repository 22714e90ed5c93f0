"""Packages of machine code: the same interface and the same answers, and no garbage for anything else."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from damaged_files import rewritten
from signing_keys import KEY, public_pem
from torch import Tensor

from lensbox.errors import ArtifactError, DeviceError, InputError
from lensbox.export.self_test_images import draw_faces
from lensbox.runtime import Artifact, Detections, compiled, load_artifact
from lensbox.runtime.artifact_loading import read_metadata
from lensbox.runtime.compiled import lacking_features

LOW = 0.05  # a score threshold at which the small detector finds something in every picture


@pytest.fixture(scope="module")
def code(package_path: Path) -> Artifact:
    return load_artifact(package_path, trusted=True)


@pytest.fixture(scope="module")
def script(artifact_path: Path) -> Artifact:
    return load_artifact(artifact_path)


def assert_same(actual: Detections, expected: Detections) -> None:
    assert len(expected.scores) > 0
    torch.testing.assert_close(actual.boxes, expected.boxes, rtol=1e-4, atol=0.01)
    torch.testing.assert_close(actual.scores, expected.scores, rtol=0, atol=1e-3)


def picture(seed: int) -> Tensor:
    return draw_faces(seed).repeat_interleave(5, dim=1).repeat_interleave(5, dim=2)


class TestTheSameInterface:
    def test_self_test(self, code: Artifact) -> None:
        report = code.self_test()
        assert report.passed
        assert report.max_score_error < 1e-4

    def test_images_of_any_size_and_thresholds(self, code: Artifact, script: Artifact) -> None:
        photographs = [picture(seed) for seed in range(5)]
        for thresholds in ((LOW, None), (LOW / 2, 0.2), (0.9, 0.9)):
            found = code.detect_images(photographs, *thresholds)
            for one, other in zip(found, script.detect_images(photographs, *thresholds), strict=True):
                torch.testing.assert_close(one.boxes, other.boxes, rtol=1e-4, atol=0.01)
                torch.testing.assert_close(one.scores, other.scores, rtol=0, atol=1e-3)
        assert_same(code.detect_image(photographs[0], LOW), script.detect_image(photographs[0], LOW))

    @pytest.mark.parametrize("batch", [1, 2, 3, 40])
    def test_canvases(self, code: Artifact, script: Artifact, batch: int) -> None:
        canvases = torch.randint(0, 256, (batch, 1, 256, 256), dtype=torch.uint8)
        code.capture([1, 2])
        for value, wanted in zip(code.detect(canvases), script.detect(canvases), strict=True):
            assert value.dtype == wanted.dtype
            torch.testing.assert_close(value, wanted, rtol=1e-4, atol=0.01)
        transposed = canvases.transpose(2, 3)  # not contiguous
        torch.testing.assert_close(code.detect(transposed)[1], script.detect(transposed)[1])

    def test_files(self, code: Artifact) -> None:
        assert isinstance(next(code.detect_files([b"no picture"])), InputError)

    def test_loss(self, code: Artifact, script: Artifact) -> None:
        boxes = torch.tensor([[1.0, 2, 5, 7], [3, 3, 9, 8]])
        assert code.loss(boxes, boxes + 1) == script.loss(boxes, boxes + 1)

    def test_an_empty_batch(self, code: Artifact) -> None:
        boxes, scores, counts = code.detect(torch.zeros(0, 1, 256, 256, dtype=torch.uint8))
        assert (boxes.shape, scores.shape, counts.shape) == ((0, 256, 4), (0, 256), (0,))

    def test_in_several_threads(self, code: Artifact) -> None:
        canvases = [torch.randint(0, 256, (2, 1, 256, 256), dtype=torch.uint8) for _ in range(12)]
        wanted = [code.detect(batch, LOW) for batch in canvases]
        with ThreadPoolExecutor(10) as threads:
            for found, expected in zip(
                threads.map(lambda x: code.detect(x, LOW), canvases), wanted, strict=True
            ):
                for value, other in zip(found, expected, strict=True):
                    assert torch.equal(value, other)

    def test_it_may_have_any_name(self, package_path: Path, tmp_path: Path) -> None:
        path = tmp_path / "detector.pt"
        path.write_bytes(package_path.read_bytes())
        assert load_artifact(path, trusted=True).self_test().passed


class TestWrongCalls:
    """The code itself would compute garbage from them."""

    @pytest.mark.parametrize(
        ("images", "message"),
        [
            (torch.zeros(1, 1, 256, 256), "images must be uint8, got float32"),
            (
                torch.zeros(1, 1, 256, 255, dtype=torch.uint8),
                r"C, H, W = \[1, 256, 256\], got \[1, 1, 256, 255\]",
            ),
            (torch.zeros(1, 3, 256, 256, dtype=torch.uint8), r"got \[1, 3, 256, 256\]"),
            (torch.zeros(1, 256, 256, dtype=torch.uint8), r"got \[1, 256, 256\]"),
        ],
    )
    def test_canvases(self, code: Artifact, images: Tensor, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            code.detect(images)

    def test_another_device(self, code: Artifact) -> None:
        with pytest.raises(ValueError, match="images must be on cpu, got meta"):
            code.module.detect(torch.zeros(1, 1, 256, 256, dtype=torch.uint8, device="meta"), 0.5, 0.5)

    @pytest.mark.parametrize("thresholds", [(1.5, None), (None, -0.1), (float("nan"), None)])
    def test_thresholds(self, code: Artifact, thresholds: tuple[float | None, float | None]) -> None:
        with pytest.raises(ValueError, match="must be between 0 and 1"):
            code.detect(torch.zeros(1, 1, 256, 256, dtype=torch.uint8), *thresholds)


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
        (tmp_path / "detector.pt2.sig").write_bytes(KEY.sign(data))
        assert load_artifact(path, trusted=True, public_key=key).self_test().passed
        path.write_bytes(data[:100] + bytes([data[100] ^ 1]) + data[101:])
        with pytest.raises(ArtifactError, match="signature"):
            load_artifact(path, trusted=True, public_key=key)


def with_metadata(change: Callable[[dict[str, Any]], object]) -> Callable[[dict[str, bytes]], None]:
    def apply(entries: dict[str, bytes]) -> None:
        (name,) = (name for name in entries if name.endswith("/extra/lensbox.json"))
        document = json.loads(entries[name])
        change(document)
        entries[name] = json.dumps(document).encode()

    return apply


def compiled_for(**values: object) -> Callable[[dict[str, bytes]], None]:
    return with_metadata(lambda document: document["compiled"].update(values))


def without(ending: str) -> Callable[[dict[str, bytes]], None]:
    def apply(entries: dict[str, bytes]) -> None:
        names = [name for name in entries if name.endswith(ending)]
        assert names
        for name in names:
            del entries[name]

    return apply


def with_entry(name: str) -> Callable[[dict[str, bytes]], None]:
    return lambda entries: entries.update({f"archive/{name}": b"x"})


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
            (with_metadata(lambda found: found.update(format_version=1)), "which packages never had"),
            (compiled_for(device="tpu"), 'compiled.device must be "cpu" or "cuda"'),
            (compiled_for(cpu_features=[1]), r"compiled.cpu_features\[0\] must be a string"),
            (compiled_for(gpu_architecture="sm_90"), "compiled.gpu_architecture must be"),
            (without("/extra/lensbox.json"), "it holds no lensbox.json"),
            (without(".so"), r"holds no compiled code: it has no entry data/aotinductor/detect/\*\.so"),
            (with_entry("data/aotinductor/detect/../../x.so"), "is not as Lensbox writes it"),
            (with_entry("data/aotinductor/detect/.x.so"), "is not as Lensbox writes it"),
        ],
    )
    def test_what_does_not_fit(
        self,
        package_path: Path,
        tmp_path: Path,
        change: Callable[[dict[str, bytes]], None],
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

    @pytest.mark.parametrize("part", [0.0, 0.3, 0.6, 0.9, 0.9999])
    def test_a_flipped_bit(self, package_path: Path, tmp_path: Path, part: float) -> None:
        data = bytearray(package_path.read_bytes())
        data[int(part * len(data))] ^= 1
        path = tmp_path / "flipped.pt2"
        path.write_bytes(data)
        with pytest.raises(ArtifactError, match=r"flipped\.pt2"):
            load_artifact(path, trusted=True)

    @pytest.mark.parametrize("length", [-1, 1000])
    def test_cut_off(self, package_path: Path, tmp_path: Path, length: int) -> None:
        path = tmp_path / "cut.pt2"
        path.write_bytes(package_path.read_bytes()[:length])
        with pytest.raises(ArtifactError, match=r"cut\.pt2 is damaged"):
            load_artifact(path, trusted=True)

    def test_code_that_the_linker_refuses(self, package_path: Path, tmp_path: Path) -> None:
        def change(entries: dict[str, bytes]) -> None:
            for name in entries:
                if name.endswith(".so"):
                    entries[name] = b"no machine code"

        path = tmp_path / "changed.pt2"
        path.write_bytes(rewritten(package_path.read_bytes(), change))
        with pytest.raises(ArtifactError, match=r"changed\.pt2 cannot be loaded on cpu by torch"):
            load_artifact(path, trusted=True)

    def test_an_exported_program_of_torch(self, tmp_path: Path) -> None:
        path = tmp_path / "program.pt2"
        program = torch.export.export(torch.nn.ReLU(), (torch.zeros(2),))
        torch.export.save(program, path)
        with pytest.raises(ArtifactError, match=r"program\.pt2 is not a Lensbox artifact"):
            load_artifact(path, trusted=True)


def test_features_that_a_processor_lacks() -> None:
    assert lacking_features(["avx2", "avx512f", "fma"], ["fma", "avx2", "sse"]) == ["avx512f"]
    assert lacking_features([], []) == []


def test_the_features_of_this_machine() -> None:
    assert compiled.this_cpu_features() == tuple(sorted(set(compiled.this_cpu_features())))
    made = compiled.this_machine(torch.device("cpu"))
    assert set(made.cpu_features) < set(compiled.this_cpu_features())
    compiled.require_machine("a file", made, torch.device("cpu"))
