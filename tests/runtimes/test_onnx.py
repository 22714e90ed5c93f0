"""An ONNX file in C++: what Python finds with the same file, and what TorchScript finds.

Labels and further outputs are the business of `test_named_outputs.py`.
"""

import json
import re
import subprocess
from pathlib import Path

import pytest
import torch
from built_runner import built_runner
from damaged_files import with_bit_flipped
from onnx_files import REFUSED, Change, other_weights, resealed, weights_in_the_current_folder
from runner_answers import LOW, Document, answer, numbers, run
from unusual_detectors import LosingItsOwnWay

from lensbox.export.pipeline import save_artifact
from lensbox.export.verify.pictures import draw_faces
from lensbox.ops import library_path
from lensbox.runtime import load_artifact

needs_onnxruntime = pytest.mark.onnx_runner


def detect(path: Path, photos: list[Path], *options: object) -> list[Document]:
    images: list[Document] = answer(
        "detect", "--artifact", path, "--image", *photos, "--score-threshold", LOW, *options
    )["images"]
    return images


@needs_onnxruntime
class TestRunner:
    def test_several_threads_find_the_same(self, onnx_path: Path, photos: list[Path]) -> None:
        found = detect(onnx_path, photos, "--threads", 2)
        python = load_artifact(onnx_path)
        for photo, image in zip(photos, found, strict=True):
            expected = python.detect_image(python.read_photo(photo), LOW)
            torch.testing.assert_close(numbers(image, "box"), expected.boxes, rtol=1e-5, atol=1e-3)
            torch.testing.assert_close(numbers(image, "score"), expected.scores, rtol=0, atol=1e-5)

    def test_with_one_thread_and_one_image_to_the_bit(self, onnx_path: Path, photos: list[Path]) -> None:
        """The same library, the same canvases: nothing is left to differ."""
        python = load_artifact(onnx_path)
        for photo, image in zip(photos, detect(onnx_path, photos), strict=True):
            expected = python.detect_image(python.read_photo(photo), LOW)
            assert torch.equal(numbers(image, "box"), expected.boxes)
            assert torch.equal(numbers(image, "score"), expected.scores)

    def test_frames_on_stdin(self, onnx_path: Path) -> None:
        frame = draw_faces(0)[0]
        frames = [frame, frame.flip(0), frame.flip(1)]
        height, width = frame.shape
        line = [built_runner(), "detect", "--artifact", onnx_path, "--raw", f"{width}x{height}", "gray8"]
        line += ["--score-threshold", LOW, "--batch", 2, "--ops", library_path()]
        stdin = b"".join(frame.numpy().tobytes() for frame in frames)
        done = subprocess.run([*map(str, line)], input=stdin, capture_output=True, check=True)
        found = [json.loads(text) for text in done.stdout.splitlines()]
        python = load_artifact(onnx_path)
        for frame, image in zip(frames, found, strict=True):
            expected = python.detect_image(frame[None], LOW)
            torch.testing.assert_close(numbers(image, "box"), expected.boxes, rtol=1e-5, atol=1e-3)

    def test_other_weights_fail_the_self_test(self, onnx_path: Path, tmp_path: Path) -> None:
        path = tmp_path / "changed.onnx"
        path.write_bytes(resealed(onnx_path.read_bytes(), other_weights))
        done = run("selftest", "--artifact", path)
        assert done.returncode == 3
        assert json.loads(done.stdout)["passed"] is False

    def test_a_loss_of_its_own_stays_behind(self, tmp_path: Path) -> None:
        path = tmp_path / "own.onnx"
        save_artifact(LosingItsOwnWay(), path, kind="onnx")
        assert answer("selftest", "--artifact", path)["passed"] is True
        boxes = tmp_path / "boxes.json"
        boxes.write_text("[[0, 0, 8, 8]]")
        done = run("loss", "--artifact", path, "--predictions", boxes, "--targets", boxes)
        assert done.returncode == 3
        assert "has no method loss" in done.stderr


def refused(path: Path) -> str:
    """Return the runner's message; check that it exits with 3 and prints nothing."""
    done = run("selftest", "--artifact", path)
    assert (done.returncode, done.stdout) == (3, ""), done.stderr
    assert path.name in done.stderr
    return done.stderr


class TestRunnerRefuses:
    @needs_onnxruntime
    @pytest.mark.parametrize(("change", "_", "message"), REFUSED)
    def test_what_does_not_fit(
        self, onnx_path: Path, tmp_path: Path, change: Change, _: str, message: str
    ) -> None:
        path = tmp_path / "changed.onnx"
        path.write_bytes(resealed(onnx_path.read_bytes(), change))
        text = refused(path)
        assert re.search(message, text, re.DOTALL), text

    def test_weights_outside_of_the_file(
        self, onnx_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """No signature would cover them."""
        monkeypatch.chdir(tmp_path)
        path = tmp_path / "changed.onnx"
        path.write_bytes(resealed(onnx_path.read_bytes(), weights_in_the_current_folder))
        assert "external data" in refused(path)

    @pytest.mark.parametrize("part", [0.0, 0.3, 0.6, 0.9, 0.9999])
    def test_a_flipped_bit(self, onnx_path: Path, tmp_path: Path, part: float) -> None:
        data = onnx_path.read_bytes()
        path = tmp_path / "flipped.onnx"
        path.write_bytes(with_bit_flipped(data, int(part * len(data))))
        assert re.search("seal|not an artifact", refused(path))

    @needs_onnxruntime
    def test_another_device(self, onnx_path: Path) -> None:
        done = run("selftest", "--artifact", onnx_path, "--device", "cuda")
        assert (done.returncode, done.stdout) == (2, "")
        if torch.cuda.is_available():
            assert "device must be cpu for an ONNX file, got cuda" in done.stderr

    def test_without_onnxruntime(
        self, onnx_path: Path, artifact_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Built without it, or not finding it; other files need none."""
        monkeypatch.setenv("LENSBOX_ONNXRUNTIME", str(tmp_path / "missing.so"))
        assert "an ONNX file, which needs onnxruntime" in refused(onnx_path)
        assert answer("info", "--artifact", onnx_path)
        assert answer("selftest", "--artifact", artifact_path)["passed"] is True

    @needs_onnxruntime
    def test_what_is_not_onnxruntime(
        self, onnx_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        library = tmp_path / "library.so"
        for content, message in (
            (b"no library", "library.so cannot be used: .*file too short|invalid ELF header"),
        ):
            library.write_bytes(content)
            monkeypatch.setenv("LENSBOX_ONNXRUNTIME", str(library))
            text = refused(onnx_path)
            assert re.search(message, text, re.DOTALL), text
        monkeypatch.setenv("LENSBOX_ONNXRUNTIME", str(library_path()))
        assert "undefined symbol: OrtGetApiBase" in refused(onnx_path)
