"""Every fit, filter, order and normalisation: all runtimes and formats give the network the same numbers."""

from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest
import torch
from letterbox_cases import expected_fit, random_image
from runner_answers import answer
from torch import Tensor, nn

from lensbox.export import save_artifact
from lensbox.model import DetectorSpec
from lensbox.runtime import TileSpec, load_artifact

HEIGHT, WIDTH = 6, 8
FILL = 9


class Shown(nn.Module):
    """One detection in every picture: the whole canvas, with the numbers that the network gets."""

    box: Tensor

    def __init__(self, channels: int, **fields: Any) -> None:
        super().__init__()
        numbers = channels * HEIGHT * WIDTH
        self.specification = DetectorSpec(
            HEIGHT, WIDTH, channels, FILL, **fields, values={"numbers": (numbers,)}, jpeg_oversampling=0
        )
        self.register_buffer("box", torch.tensor([0.0, 0.0, WIDTH, HEIGHT]))

    def detect(self, images: Tensor, score_threshold: float, iou_threshold: float) -> dict[str, Tensor]:
        scores = images.new_full([images.shape[0], 1], 0.75, dtype=torch.float32)
        return {
            "boxes": self.box.expand(images.shape[0], 1, 4),
            "scores": scores,
            "counts": (scores > score_threshold).sum(dim=1),
            "numbers": images.float().flatten(1)[:, None],
        }


# Channels, fields of a specification, and the part of a photograph of 40 x 20 pixels that the canvas shows.
WHOLE = (0.0, 0.0, 40.0, 20.0)
CASES: dict[str, tuple[int, dict[str, Any], tuple[float, ...]]] = {
    # The canvas covers 26 2/3 columns of the middle. 40 columns become 12, and 2 are cut off on each side.
    "crop": (1, {"fit": "crop", "filter": "lanczos"}, (40 / 6, 0, 40 - 40 / 6, 20)),
    "stretch": (
        3,
        {"fit": "stretch", "filter": "bicubic", "order": "bgr"}
        | {"mean": (0.4, 0.5, 0.6), "std": (0.25, 0.5, 0.75)},
        WHOLE,
    ),
    "letterbox": (3, {"filter": "nearest", "mean": (0, 0, 0), "std": (1, 1, 1)}, WHOLE),
    "ultralytics": (
        3,
        {"fit": "ultralytics", "filter": "opencv_linear", "mean": (0, 0, 0), "std": (1, 1, 1)},
        WHOLE,
    ),
    "ultralytics_shrink": (1, {"fit": "ultralytics_shrink", "filter": "opencv_linear"}, WHOLE),
}


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    path = tmp_path / "photo.png"
    PIL.Image.fromarray(random_image(3, 20, 40).permute(1, 2, 0).numpy()).save(path)
    return path


def expected_numbers(photo: PIL.Image.Image, canvas: DetectorSpec) -> Tensor:
    pixels = torch.from_numpy(np.array(photo)).permute(2, 0, 1)
    order = "gray" if canvas.channels == 1 else canvas.order
    levels = expected_fit(pixels, HEIGHT, WIDTH, canvas.fit, canvas.filter, order, FILL)
    if not canvas.mean:
        return levels.float().flatten()
    mean, std = (torch.tensor(numbers).view(-1, 1, 1) for numbers in (canvas.mean, canvas.std))
    return ((levels.float() / 255 - mean) / std).flatten()


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *((name, "torchscript") for name in CASES),
        *(("stretch", "program"), ("ultralytics", "onnx")),
        pytest.param("stretch", "onnx", marks=pytest.mark.exhaustive),
        pytest.param("ultralytics", "program", marks=pytest.mark.exhaustive),
    ],
)
def test_python_and_cpp_give_the_network_the_same_pixels(
    name: str, kind: str, photo: Path, tmp_path: Path
) -> None:
    path, (channels, fields, part) = tmp_path / "detector", CASES[name]
    detector: Any = Shown(channels, **fields)
    save_artifact(detector, path, kind=kind)
    artifact = load_artifact(path)
    assert artifact.self_test().passed
    expected = expected_numbers(PIL.Image.open(photo), detector.specification)
    tolerance = 2e-7 if kind == "onnx" else 0  # onnxruntime may round a division differently
    found = artifact.detect_image(photo)
    answers = [(found.boxes[0], found.extras["numbers"][0])]
    if kind != "onnx":  # the default runner reads no ONNX files
        (image,) = answer("detect", "--artifact", path, "--image", photo)["images"]
        (detection,) = image["detections"]
        answers.append((detection["box"], detection["extras"]["numbers"]))
    for box, numbers in answers:
        torch.testing.assert_close(torch.as_tensor(numbers), expected, rtol=tolerance, atol=0)
        np.testing.assert_allclose(box, part, atol=1e-4)
    tiles = artifact.detect_image(photo, tiles=TileSpec(WIDTH, 0.0, whole=False))
    assert len(tiles.boxes) == 20
    for box, numbers in zip(tiles.boxes.tolist(), tiles.extras["numbers"], strict=True):
        shown = expected_numbers(PIL.Image.open(photo).crop(tuple(box)), detector.specification)
        torch.testing.assert_close(torch.as_tensor(numbers), shown, rtol=tolerance, atol=0)
