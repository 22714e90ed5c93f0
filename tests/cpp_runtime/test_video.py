"""detect --video, with and without OpenCV."""

import json
import shutil
from pathlib import Path

import pytest
from cpp_runtime.image_files import noise
from cpp_runtime.running import Run

COUNT = 5


def test_without_opencv_it_says_so(run: Run, runner: Path, artifact: Path, tmp_path: Path) -> None:
    # The part of the program that needs OpenCV lies beside it.
    alone = shutil.copy(runner, tmp_path)
    result = run("detect", "--artifact", artifact, "--video", tmp_path / "x.avi", program=alone)
    assert (result.code, result.stdout) == (2, "")
    assert "--video: this program was built without OpenCV" in result.stderr
    assert "--raw" in result.stderr


@pytest.fixture
def _opencv(runner: Path) -> None:
    if not (runner.parent / "liblensbox_video.so").is_file():
        pytest.skip("the runner was built without OpenCV")


@pytest.mark.usefixtures("_opencv")
@pytest.mark.parametrize("batch", ["1", "3"])
def test_frames_of_a_video(run: Run, artifact: Path, tmp_path: Path, batch: str) -> None:
    # A sequence of PNG files is a video without losses to OpenCV.
    frames = [tmp_path / f"{number}.png" for number in range(COUNT)]
    for number, path in enumerate(frames):
        noise("RGB", 96, 64).rotate(30 * number).save(path)
    result = run("detect", "--artifact", artifact, "--batch", batch, "--video", tmp_path / "%d.png")
    assert result.code == 0, result.stderr
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [line.pop("frame") for line in lines] == list(range(COUNT))
    expected = run("detect", "--artifact", artifact, "--batch", batch, "--image", *frames).json()["images"]
    for line, entry in zip(lines, expected, strict=True):
        assert (line["width"], line["height"]) == (96, 64)
        assert entry["detections"]
        assert line["detections"] == entry["detections"]


@pytest.mark.usefixtures("_opencv")
@pytest.mark.parametrize("name", ["absent.avi", "text.avi", "98"])
def test_no_video(run: Run, artifact: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "text.avi").write_text("no video")
    video = name if name.isdecimal() else tmp_path / name
    result = run("detect", "--artifact", artifact, "--video", video)
    assert (result.code, result.stdout) == (4, "")
    assert f"lensbox_runner: video {video}: cannot be opened" in result.stderr
