from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest
import torch
from cpp_runtime.image_files import encoded, noise, png_header
from cpp_runtime.running import Run

from lensbox.runtime.images.files import read_image
from lensbox.runtime.loading import load_artifact

MODES = ["L", "RGB", "RGBA", "LA", "P", "1", "I;16"]


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    path = tmp_path / "photo.png"
    noise("RGB").save(path)
    return path


@pytest.mark.parametrize("mode", MODES)
def test_same_boxes_as_python_for_every_kind_of_png(
    run: Run, artifact: Path, tmp_path: Path, mode: str
) -> None:
    path = tmp_path / "image.png"
    noise(mode).save(path)
    result = run("detect", "--artifact", artifact, "--image", path)
    assert result.code == 0, result.stderr
    (entry,) = result.json()["images"]
    assert set(entry) == {"file", "width", "height", "detections"}
    assert (entry["file"], entry["width"], entry["height"]) == (str(path), 90, 70)

    expected = load_artifact(artifact).detect_image(read_image(path))
    assert len(expected.scores) > 0
    boxes = torch.tensor([detection["box"] for detection in entry["detections"]])
    scores = torch.tensor([detection["score"] for detection in entry["detections"]])
    torch.testing.assert_close(boxes, expected.boxes, atol=0.01, rtol=0)
    torch.testing.assert_close(scores, expected.scores, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    "options", [{}, {"progressive": True}, {"subsampling": 0}, {"restart_marker_blocks": 2}]
)
@pytest.mark.parametrize("mode", ["L", "RGB", "CMYK"])
def test_jpeg(run: Run, artifact: Path, tmp_path: Path, mode: str, options: Any) -> None:
    path = tmp_path / "image.jpg"
    noise("RGB", width=50, height=31).convert(mode).save(path, **options)
    result = run("detect", "--artifact", artifact, "--image", path)
    assert result.code == 0, result.stderr
    (entry,) = result.json()["images"]
    assert (entry["width"], entry["height"]) == (50, 31)
    assert entry["detections"]


def test_thresholds_default_to_the_artifact_and_can_be_given(run: Run, artifact: Path, photo: Path) -> None:
    def count(*options: str) -> int:
        result = run("detect", "--artifact", artifact, "--image", photo, *options)
        return len(result.json()["images"][0]["detections"])

    default = count()
    assert default == count("--score-threshold", "0.0104", "--iou-threshold", "0.5")
    assert count("--score-threshold", "1") == 0 < default
    assert count("--score-threshold", "0") > default
    assert count("--iou-threshold", "0") < count("--iou-threshold", "1")


def test_numbers_read_back_as_the_same_float(run: Run, artifact: Path, photo: Path) -> None:
    (entry,) = run("detect", "--artifact", artifact, "--image", photo).json()["images"]
    for detection in entry["detections"]:
        for value in [*detection["box"], detection["score"]]:
            assert len(repr(value).lstrip("0.").replace(".", "").split("e")[0]) <= 9
            assert float(str(np.float32(value))) == value


def test_a_bad_image_does_not_stop_the_others(run: Run, artifact: Path, photo: Path, tmp_path: Path) -> None:
    absent = tmp_path / "absent.png"
    result = run("detect", "--artifact", artifact, "--image", photo, absent, "--image", photo)
    assert result.code == 4
    first, bad, last = result.json()["images"]
    assert first == last
    assert first["detections"]
    assert bad == {"file": str(absent), "error": f"image {absent}: no such file"}
    assert str(absent) in result.stderr


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b"not an image", "neither a JPEG nor a PNG file"),
        (encoded(noise("RGB"), "GIF"), "neither a JPEG nor a PNG file"),
        (encoded(noise("RGB"), "JPEG")[:-20], "the JPEG file is truncated"),
        (encoded(noise("RGB"), "JPEG")[:100], "header is damaged"),
        (encoded(noise("RGB"), "PNG")[:-200], "damaged or truncated"),
        (encoded(noise("RGB"), "PNG").replace(b"IDAT", b"IDOT"), "damaged or truncated"),
        (png_header(20, 10), "damaged or truncated"),
        (png_header(8193, 8192), "at most 67108864 pixels are accepted, got 8193 x 8192"),
        (
            png_header(2**31 - 1, 2**31 - 1),
            "at most 67108864 pixels are accepted, got 2147483647 x 2147483647",
        ),
        (png_header(0, 10), "header is damaged"),
    ],
)
def test_bad_image_files(run: Run, artifact: Path, tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "bad.png"
    path.write_bytes(content)
    result = run("detect", "--artifact", artifact, "--image", path)
    assert result.code == 4
    (entry,) = result.json()["images"]
    assert message in entry["error"]
    assert str(path) in entry["error"]
    assert result.stderr == f"lensbox_runner: {entry['error']}\n"


def test_a_file_name_that_is_not_utf8(run: Run, artifact: Path, tmp_path: Path) -> None:
    path = tmp_path / b"caf\xe9.png".decode(errors="surrogateescape")
    noise("RGB").save(path)
    result = run("detect", "--artifact", artifact, "--image", path)
    assert result.code == 0
    assert result.json()["images"][0]["file"].endswith("caf\ufffd.png")


def test_the_smallest_image(run: Run, artifact: Path, tmp_path: Path) -> None:
    path = tmp_path / "dot.png"
    PIL.Image.new("RGB", (1, 1)).save(path)
    result = run("detect", "--artifact", artifact, "--image", path)
    assert result.code == 0, result.stderr
    assert result.json()["images"][0]["width"] == 1


def test_threads(run: Run, artifact: Path, photo: Path) -> None:
    arguments = ["detect", "--artifact", artifact, "--image", photo]
    assert run(*arguments, "--threads", "2").json() == run(*arguments).json()


def test_output_can_be_piped_to_loss(run: Run, artifact: Path, photo: Path, tmp_path: Path) -> None:
    found = run("detect", "--artifact", artifact, "--image", photo)
    targets = tmp_path / "targets.json"
    targets.write_text(found.stdout)
    result = run(
        "loss", "--artifact", artifact, "--predictions", "-", "--targets", targets, stdin=found.stdout
    )
    assert result.code == 0, result.stderr
    boxes = torch.tensor([entry["box"] for entry in found.json()["images"][0]["detections"]])
    loss = load_artifact(artifact).loss(boxes, boxes)
    assert result.json() == {"loss": pytest.approx(loss, abs=1e-6), "slots": len(boxes)}
