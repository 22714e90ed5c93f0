"""ONNX files: threads, device, and errors of changed files."""

import sys
from pathlib import Path

import pytest
from onnx_files import REFUSED, Change, other_weights, resealed, weights_in_the_current_folder

from lensbox.common.errors import ArtifactError, DeviceError
from lensbox.runtime import load_artifact
from lensbox.runtime.formats.onnx import OnnxruntimeSession


def test_threads(onnx_path: Path) -> None:
    session = OnnxruntimeSession(onnx_path.read_bytes(), "a file", threads=3)
    assert session._session.get_session_options().intra_op_num_threads == 3


def test_another_device(onnx_path: Path) -> None:
    with pytest.raises(DeviceError, match=r"device must be cpu for an ONNX file, got cuda:0 for .*\.onnx"):
        load_artifact(onnx_path, "cuda:0")
    assert load_artifact(onnx_path, "auto").device.type == "cpu"


class TestDamagedFiles:
    @pytest.mark.parametrize(("change", "message", "_"), REFUSED)
    def test_rejects_changed_models(
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


def test_a_missing_package_is_named(onnx_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ArtifactError, match=r"onnx is .*onnxruntime: pip install 'lensbox\[onnx\]'"):
        load_artifact(onnx_path)
