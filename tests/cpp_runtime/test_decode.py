"""detect --decode: JPEG files decoded on the GPU or the CPU, with the same answers."""

from pathlib import Path

import PIL.Image
import pytest
from cpp_runtime.image_files import noise
from cpp_runtime.running import Run
from user_detectors import RedAndBlue

from lensbox.export.pipeline import save_artifact

ORIENTATION = 0x0112


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """JPEG files, turned, progressive, truncated and large ones among them, and other files."""
    paths = []
    for turn in range(1, 9):
        paths.append(tmp_path / f"turned{turn}.jpg")
        exif = PIL.Image.Exif()
        exif[ORIENTATION] = turn
        noise("RGB", 300, 200).save(paths[-1], exif=exif)
    for name, is_progressive in {"plain.jpg": False, "progressive.jpg": True, "flat.png": False}.items():
        paths.append(tmp_path / name)
        noise("RGB", 257, 259).save(paths[-1], progressive=is_progressive)
    paths.append(tmp_path / "large.jpg")
    noise("RGB", 1400, 1400).save(paths[-1])
    paths.append(tmp_path / "truncated.jpg")
    paths[-1].write_bytes((tmp_path / "plain.jpg").read_bytes()[:-2000])
    paths.append(tmp_path / "absent.jpg")
    return paths


def test_auto_decodes_on_the_cpu_without_a_gpu(run: Run, artifact: Path, files: list[Path]) -> None:
    answers = [
        run("detect", "--artifact", artifact, "--batch", "40", "--decode", decode, "--image", *files)
        for decode in ("auto", "cpu")
    ]
    assert answers[0] == answers[1]
    assert len(answers[0].json()["images"]) == len(files)


def test_gpu_must_be_the_detectors_device(run: Run, artifact: Path, files: list[Path]) -> None:
    result = run("detect", "--artifact", artifact, "--decode", "gpu", "--image", files[0])
    assert result.code == 2
    assert "decode must be auto or cpu here, got gpu: the detector is on the device cpu" in result.stderr


@pytest.mark.gpu
@pytest.mark.parametrize(("batch", "has_colors"), [("1", False), ("5", False), ("40", False), ("40", True)])
def test_gpu_gives_the_answers_of_the_cpu(
    run: Run, artifact: Path, files: list[Path], batch: str, has_colors: bool, tmp_path: Path
) -> None:
    if has_colors:
        artifact = tmp_path / "colors.pt"
        save_artifact(RedAndBlue(), artifact)
    answers = [
        run(
            *("detect", "--artifact", artifact, "--device", "cuda", "--batch", batch),
            *("--decode-threads", "3", "--decode", decode, "--image", *files),
        )
        for decode in ("gpu", "cpu")
    ]
    assert answers[0].code == 4
    assert answers[0] == answers[1]
