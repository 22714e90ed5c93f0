"""Artifacts that are ONNX files: the same interface, the same answers, and no garbage for anything else."""

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import onnx
import PIL.Image
import pytest
import torch
from torch import Tensor

from lensbox.errors import ArtifactError, DeviceError, InputError
from lensbox.export.self_test_images import draw_faces
from lensbox.runtime import Artifact, Detections, OnnxOptions, load_artifact
from lensbox.runtime.onnx_file import sealed
from lensbox.runtime.onnxruntime_session import OnnxruntimeSession

LOW = 0.05  # a score threshold at which the small detector finds something in every picture


@pytest.fixture(scope="module")
def graph(onnx_path: Path) -> Artifact:
    return load_artifact(onnx_path)


@pytest.fixture(scope="module")
def script(artifact_path: Path) -> Artifact:
    return load_artifact(artifact_path)


def assert_same(actual: Detections, expected: Detections) -> None:
    assert len(expected.scores) > 0
    torch.testing.assert_close(actual.boxes, expected.boxes, rtol=1e-4, atol=0.01)
    torch.testing.assert_close(actual.scores, expected.scores, rtol=0, atol=1e-3)


def picture(seed: int) -> Tensor:
    return draw_faces(seed).repeat_interleave(5, dim=1).repeat_interleave(5, dim=2)


def picture_file(seed: int) -> bytes:
    file = io.BytesIO()
    PIL.Image.fromarray(picture(seed).permute(1, 2, 0).numpy()).save(file, "JPEG", quality=95)
    return file.getvalue()


class TestTheSameInterface:
    def test_self_test(self, graph: Artifact) -> None:
        report = graph.self_test()
        assert report.passed
        assert report.max_score_error < 1e-4

    def test_images(self, graph: Artifact, script: Artifact) -> None:
        photographs = [picture(seed) for seed in range(3)]
        assert_same(graph.detect_image(photographs[0], LOW), script.detect_image(photographs[0], LOW))
        for thresholds in ((LOW, None), (LOW / 2, 0.2)):
            found = graph.detect_images(photographs, *thresholds)
            for one, other in zip(found, script.detect_images(photographs, *thresholds), strict=True):
                assert_same(one, other)

    def test_files_and_photos(self, graph: Artifact, script: Artifact) -> None:
        files = [picture_file(0), b"no picture", picture_file(1)]
        found = list(graph.detect_files(files, batch_size=2, threads=1, score_threshold=LOW))
        assert isinstance(found[1], InputError)
        for index in (0, 2):
            one, other = found[index], script.detect_image(script.read_photo(files[index]), LOW)
            assert isinstance(one, Detections)
            assert_same(one, other)
            assert_same(graph.detect_image(graph.read_photo(files[index]), LOW), other)

    def test_canvases_and_capture(self, graph: Artifact, script: Artifact) -> None:
        canvases = torch.randint(0, 256, (3, 1, 256, 256), dtype=torch.uint8)
        graph.capture([1, 2])
        actual, expected = graph.detect(canvases), script.detect(canvases)
        for value, wanted in zip(actual, expected, strict=True):
            assert value.dtype == wanted.dtype
            torch.testing.assert_close(value, wanted, rtol=1e-4, atol=0.01)
        transposed = canvases.transpose(2, 3)  # not contiguous
        torch.testing.assert_close(graph.detect(transposed)[1], script.detect(transposed)[1])

    def test_loss(self, graph: Artifact, script: Artifact) -> None:
        boxes = torch.tensor([[1.0, 2, 5, 7], [3, 3, 9, 8]])
        assert graph.loss(boxes, boxes + 1) == script.loss(boxes, boxes + 1)

    def test_an_empty_batch(self, graph: Artifact) -> None:
        boxes, scores, counts = graph.detect(torch.zeros(0, 1, 256, 256, dtype=torch.uint8))
        assert (boxes.shape, scores.shape, counts.shape) == ((0, 256, 4), (0, 256), (0,))

    def test_it_may_have_any_name(self, onnx_path: Path, tmp_path: Path) -> None:
        path = tmp_path / "detector.pt"
        path.write_bytes(onnx_path.read_bytes())
        assert load_artifact(path).self_test().passed

    def test_threads(self, onnx_path: Path) -> None:
        session = OnnxruntimeSession(onnx_path.read_bytes(), "a file", threads=3)
        assert session._session.get_session_options().intra_op_num_threads == 3
        artifact = load_artifact(onnx_path, onnx=OnnxOptions(threads=2))
        assert artifact.module._run.__self__._session.get_session_options().intra_op_num_threads == 2


class TestWrongCalls:
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
    def test_canvases(self, graph: Artifact, images: Tensor, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            graph.detect(images)

    @pytest.mark.parametrize("thresholds", [(1.5, None), (None, -0.1), (float("nan"), None)])
    def test_thresholds(self, graph: Artifact, thresholds: tuple[float | None, float | None]) -> None:
        with pytest.raises(ValueError, match="must be between 0 and 1"):
            graph.detect(torch.zeros(1, 1, 256, 256, dtype=torch.uint8), *thresholds)

    def test_device(self, onnx_path: Path) -> None:
        with pytest.raises(
            DeviceError, match=r"device must be cpu for an ONNX file, got cuda:0 for .*\.onnx"
        ):
            load_artifact(onnx_path, "cuda:0")

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("runtime", "tensorrt"),
            ("threads", 0),
            ("threads", True),
            ("precision", "int8"),
            ("precision", "bfloat16"),
        ],
    )
    def test_options(self, field: str, value: object) -> None:
        with pytest.raises(ValueError, match=f"{field} must be"):
            OnnxOptions(**{field: value})  # type: ignore[arg-type]


def resealed(data: bytes, change: Callable[[onnx.ModelProto], None]) -> bytes:
    """The file after a change by somebody who knows how it is sealed."""
    model = onnx.load_model_from_string(data)
    kept = {entry.key: entry.value for entry in model.metadata_props if entry.key != "lensbox.sha256"}
    onnx.helper.set_model_props(model, kept)
    change(model)
    return sealed(model.SerializeToString())


def with_metadata(change: Callable[[dict[str, object]], object]) -> Callable[[onnx.ModelProto], None]:
    def apply(model: onnx.ModelProto) -> None:
        for entry in model.metadata_props:
            if entry.key == "lensbox.json":
                document = json.loads(entry.value)
                change(document)
                entry.value = json.dumps(document)

    return apply


def without_metadata(model: onnx.ModelProto) -> None:
    onnx.helper.set_model_props(model, {})


def other_output(model: onnx.ModelProto) -> None:
    del model.graph.output[2]


def other_operator(model: onnx.ModelProto) -> None:
    model.graph.node[0].domain = "some.where"
    model.opset_import.append(onnx.helper.make_opsetid("some.where", 1))


class TestDamagedFiles:
    @pytest.mark.parametrize("part", [0.0, 0.3, 0.6, 0.9, 0.9999])
    def test_a_flipped_bit(self, onnx_path: Path, tmp_path: Path, part: float) -> None:
        data = bytearray(onnx_path.read_bytes())
        data[int(part * len(data))] ^= 1
        path = tmp_path / "flipped.onnx"
        path.write_bytes(data)
        with pytest.raises(ArtifactError, match=r"flipped\.onnx"):
            load_artifact(path)

    @pytest.mark.parametrize(
        "change", [lambda data: data[:-1], lambda data: data[:1000], lambda data: data + b"x"]
    )
    def test_cut_or_lengthened(
        self, onnx_path: Path, tmp_path: Path, change: Callable[[bytes], bytes]
    ) -> None:
        path = tmp_path / "other.onnx"
        path.write_bytes(change(onnx_path.read_bytes()))
        with pytest.raises(ArtifactError, match=r"other\.onnx is no artifact as Lensbox wrote it"):
            load_artifact(path)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (without_metadata, "it holds no lensbox.json"),
            (with_metadata(lambda found: found.update(format_version=99)), "its format version is 99"),
            (with_metadata(lambda found: found.update(format_version=1)), "which ONNX files never had"),
            (with_metadata(lambda found: found.pop("defaults")), "it is malformed: .*defaults"),
            (
                with_metadata(lambda found: found["canvas"].update(height=128)),  # type: ignore[attr-defined]
                r"its input images must be uint8 \[any, 1, 128, 256\], it is uint8 \[any, 1, 256, 256\]",
            ),
            (
                with_metadata(lambda found: found.update(extras={"age": {"shape": [], "kind": "values"}})),
                "extras",
            ),
            (other_output, "must have the outputs boxes, scores, counts, it has boxes, scores"),
            (other_operator, "cannot be loaded by onnxruntime"),
        ],
    )
    def test_what_does_not_fit(
        self, onnx_path: Path, tmp_path: Path, change: Callable[[onnx.ModelProto], None], message: str
    ) -> None:
        path = tmp_path / "changed.onnx"
        path.write_bytes(resealed(onnx_path.read_bytes(), change))
        with pytest.raises(ArtifactError, match=rf"(?s)changed\.onnx .*{message}"):
            load_artifact(path)

    def test_other_weights_fail_the_self_test(self, onnx_path: Path, tmp_path: Path) -> None:
        def change(model: onnx.ModelProto) -> None:
            for value in model.graph.initializer:
                if value.name.endswith("head4.prediction.weight"):
                    value.raw_data = bytes(len(value.raw_data))

        path = tmp_path / "changed.onnx"
        path.write_bytes(resealed(onnx_path.read_bytes(), change))
        assert not load_artifact(path).self_test().passed


@pytest.mark.parametrize(("package", "extra"), [("onnxruntime", "onnx"), ("openvino", "openvino")])
def test_a_missing_package_is_named(
    onnx_path: Path, monkeypatch: pytest.MonkeyPatch, package: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    options = OnnxOptions(runtime=package)  # type: ignore[arg-type]
    with pytest.raises(
        ArtifactError, match=rf"detector\.onnx is .*{package}: pip install 'lensbox\[{extra}\]'"
    ):
        load_artifact(onnx_path, onnx=options)


def test_openvino_finds_the_same(onnx_path: Path, graph: Artifact) -> None:
    pytest.importorskip("openvino")
    artifact = load_artifact(onnx_path, onnx=OnnxOptions(runtime="openvino", threads=1))
    assert artifact.self_test().passed
    for seed in range(3):
        assert_same(artifact.detect_image(picture(seed), LOW), graph.detect_image(picture(seed), LOW))


def test_openvino_in_bfloat16_rounds(onnx_path: Path) -> None:
    openvino = pytest.importorskip("openvino")
    options = OnnxOptions(runtime="openvino", threads=1, precision="bfloat16")
    if "BF16" not in openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
        with pytest.raises(ArtifactError, match="this CPU has no instructions"):
            load_artifact(onnx_path, onnx=options)
        return
    report = load_artifact(onnx_path, onnx=options).self_test()
    assert report.passed
    assert report.max_score_error > 1e-5
