"""Artifacts that are ONNX files: their runtimes, and which files are refused."""

import sys
from pathlib import Path

import pytest
from onnx_files import REFUSED, Change, other_weights, resealed, weights_in_the_current_folder

from lensbox.common.errors import ArtifactError, DeviceError
from lensbox.runtime import OnnxOptions, load_artifact
from lensbox.runtime.formats.onnx import OnnxruntimeSession


def test_threads(onnx_path: Path) -> None:
    session = OnnxruntimeSession(onnx_path.read_bytes(), "a file", threads=3)
    assert session._session.get_session_options().intra_op_num_threads == 3
    artifact = load_artifact(onnx_path, onnx=OnnxOptions(threads=2))
    assert artifact.module._run.__self__._session.get_session_options().intra_op_num_threads == 2


class TestWrongOptions:
    def test_device(self, onnx_path: Path) -> None:
        with pytest.raises(
            DeviceError, match=r"device must be cpu for an ONNX file, got cuda:0 for .*\.onnx"
        ):
            load_artifact(onnx_path, "cuda:0")
        assert load_artifact(onnx_path, "auto").device.type == "cpu"

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


class TestDamagedFiles:
    @pytest.mark.parametrize(("change", "message", "_"), REFUSED)
    def test_what_does_not_fit(
        self, onnx_path: Path, tmp_path: Path, change: Change, message: str, _: str
    ) -> None:
        path = tmp_path / "changed.onnx"
        path.write_bytes(resealed(onnx_path.read_bytes(), change))
        with pytest.raises(ArtifactError, match=rf"(?s)changed\.onnx .*{message}"):
            load_artifact(path)

    def test_weights_outside_of_the_file(
        self, onnx_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """No signature would cover them."""
        monkeypatch.chdir(tmp_path)
        path = tmp_path / "changed.onnx"
        path.write_bytes(resealed(onnx_path.read_bytes(), weights_in_the_current_folder))
        with pytest.raises(ArtifactError, match=r"changed\.onnx has external data"):
            load_artifact(path)

    def test_other_weights_fail_the_self_test(self, onnx_path: Path, tmp_path: Path) -> None:
        path = tmp_path / "changed.onnx"
        path.write_bytes(resealed(onnx_path.read_bytes(), other_weights))
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
