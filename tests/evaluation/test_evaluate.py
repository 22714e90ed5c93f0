"""`evaluate` and its command take a detector, as a module or as an artifact, and labelled photographs."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from labelled_faces import write_labels
from picture_files import exif
from PIL import Image
from programs import Lensbox
from small_detectors import RedAndBlue
from torch import Tensor, nn

from lensbox.common.errors import InputError
from lensbox.evaluation.data.account import Account
from lensbox.evaluation.data.labels import LabelledImage, read_labels
from lensbox.evaluation.evaluate import evaluate, evaluate_file
from lensbox.export import save_artifact
from lensbox.model import DetectorSpec


@pytest.fixture
def photographs(tmp_path: Path) -> list[LabelledImage]:
    """A photograph of 640 x 384 pixels with a red square of 64 pixels."""
    pixels = np.full((384, 640, 3), 110, np.uint8)
    pixels[120:184, 400:464] = (250, 10, 10)
    return read_labels([write_labels(tmp_path, "400 120 64 64 0 0 0 0 0 0 red", pixels=pixels)])[0]


class Watched(RedAndBlue):
    """Notes the mode in which it is called."""

    modes: set[tuple[bool, bool]]

    def detect(self, images: Tensor, score_threshold: float, iou_threshold: float) -> dict[str, Tensor]:
        assert images.shape[1:] == (3, 192, 320)
        self.modes = {(self.training, torch.is_grad_enabled())}
        return super().detect(images, score_threshold, iou_threshold)


def test_a_module_is_scored_on_its_canvas_in_eval_mode_without_gradients(
    photographs: list[LabelledImage],
) -> None:
    detector = Watched().train()
    figures = evaluate(detector, photographs)
    assert figures.classes["red"]["average_precision"]["all>=8"] == 1
    assert detector.modes == {(False, False)}
    assert detector.training


class Returning(nn.Module):
    def __init__(self, **outputs: Tensor) -> None:
        super().__init__()
        self.specification = DetectorSpec(8, 8)
        boxes, scores, counts = torch.ones(1, 1, 4), torch.ones(1, 1), torch.ones(1).long()
        self.outputs: dict[str, Any] = {"boxes": boxes, "scores": scores, "counts": counts} | outputs

    def detect(self, *_: object) -> dict[str, Tensor]:
        return self.outputs


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (nn.ReLU(), "must have a specification"),
        (Returning(scores=torch.full((1, 1), torch.nan)), "score of .* must be finite numbers, got null"),
    ],
)
def test_modules_that_cannot_be_scored_are_refused(
    photographs: list[LabelledImage], module: nn.Module, words: str
) -> None:
    with pytest.raises(InputError, match=words):
        evaluate(module, photographs)


@pytest.mark.parametrize("files", [(None, "shipped_path"), ("artifact_path", "program_path")])
def test_artifacts_score_as_their_weights_do(
    faces_shard: Path, tmp_path: Path, lensbox: Lensbox, request: pytest.FixtureRequest, files: Any
) -> None:
    results = []
    for file in files:  # by default the shipped weights
        options = [] if file is None else ["--artifact", request.getfixturevalue(file)]
        lensbox("evaluate", "--data", faces_shard, *options, "--json", tmp_path / "figures.json")
        results.append(json.loads((tmp_path / "figures.json").read_text())["average_precision"])
    assert results[0] == pytest.approx(results[1], abs=1e-6, nan_ok=True)


class Squeezed(RedAndBlue):
    """Stretches photographs to its canvas, where Lensbox would pad them."""

    def preprocess(self, images: list[Tensor], windows: Tensor | None = None) -> tuple[Tensor, Tensor]:
        batches = [image.float().unsqueeze(0) for image in images]
        canvases = [torch.nn.functional.interpolate(one, [192, 320], mode="bilinear") for one in batches]
        sizes = [[one.shape[3] / 320.0, one.shape[2] / 192.0, 0.0, 0.0, 0.0, 0.0] for one in batches]
        return torch.cat(canvases).round().to(torch.uint8), torch.tensor(sizes)

    def restore(self, boxes: Tensor, geometry: Tensor) -> Tensor:
        return boxes * torch.cat([geometry[:, None, :2], geometry[:, None, :2]], dim=2)


@pytest.mark.parametrize(("make", "orientation", "tall"), [(RedAndBlue, "stored", 1), (Squeezed, "exif", 2)])
def test_artifacts_are_scored_on_turned_photographs(
    tmp_path: Path, lensbox: Lensbox, make: type[RedAndBlue], orientation: str, tall: int
) -> None:
    """A red thing in a photograph of 320 x 192 pixels, or twice as tall, stored with EXIF orientation 6."""
    pixels = np.full((192 * tall, 320, 3), 110, np.uint8)
    pixels[60 * tall : 92 * tall, 200:232] = (250, 10, 10)
    photo, truth, result = (tmp_path / name for name in ("a.png", "truth.json", "r.json"))
    Image.fromarray(pixels).transpose(Image.Transpose.ROTATE_90).save(photo, exif=exif(6))
    box = [200, 60 * tall, 32, 32 * tall] if orientation == "exif" else [60, 320 - 232, 32, 32]
    content = {
        "images": [{"id": 1, "file_name": "a.png"}],
        "categories": [{"id": 1, "name": "red"}],
        "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": box}],
    }
    truth.write_text(json.dumps(content))

    def ap50(*options: object) -> tuple[str, str, str]:
        printed, said = lensbox("evaluate", "--data", truth, *options)
        (line,) = (line for line in printed.splitlines() if "IoU=0.50      | area=   all" in line)
        return line[-5:], printed, said

    detector = make()
    detector.specification = replace(detector.specification, orientation="stored")
    save_artifact(detector, tmp_path / "detector.pt")
    artifact = ["--artifact", tmp_path / "detector.pt"]
    rule = [] if orientation == "stored" else ["--orientation", orientation]  # by default the artifact's own
    score, printed, said = ap50(*artifact, *rule, "--coco", "--json", result)
    assert score == "1.000"
    ends = [line.split()[-1] for line in printed.splitlines() if line.endswith(("red", "blue", "2 classes"))]
    assert ends == ["classes", "red", "blue"]
    figures = json.loads(result.read_text())
    assert {label: one["boxes"] for label, one in figures["classes"].items()} == {"red": 1, "blue": 0}
    red, blue = (figures["classes"][label]["average_precision"]["all>=8"] for label in ("red", "blue"))
    assert (red, blue, figures["average_precision"]["all>=8"]) == (1, None, 1)  # blue has no box
    assert f"1  photographs with an EXIF orientation: {photo}: boxes of the " in said
    assert f"(--orientation {orientation})" in said
    other = "exif" if orientation == "stored" else "stored"
    assert ap50(*artifact, "--orientation", other, "--coco")[0] != "1.000"


def test_labels_and_detections_are_clipped_alike_and_data_without_boxes_are_refused(tmp_path: Path) -> None:
    """The label reaches 40 pixels beyond the photograph, the detection only to the edge."""
    pixels = np.full((192, 320, 3), 110, np.uint8)
    pixels[60:84, :24] = (250, 10, 10)
    write_labels(tmp_path, "-40 60 64 24 0 0 0 0 0 0 red", pixels=pixels)
    account = Account()
    figures = evaluate(RedAndBlue(), read_labels([tmp_path], account=account)[0], account=account)
    assert figures.coco["AP50"] == 1
    assert figures.account["counts"]["boxes clipped"] == 1
    assert (figures.score_threshold, figures.iou_threshold, figures.canvas) == (0.02, 0.3, (192, 320))
    write_labels(tmp_path, "-40 60 64 24 0 0 0 0 0 0 green", pixels=pixels)
    with pytest.raises(
        InputError, match=r"boxes to find of the detector's classes, red, blue, got none .*green"
    ):
        evaluate(RedAndBlue(), read_labels([tmp_path])[0])


def test_the_detectors_thresholds_count(photographs: list[LabelledImage]) -> None:
    detector = RedAndBlue()
    for least, iou in ((0.01, 0.1), (0.4, 0.95)):
        detector.specification = replace(detector.specification, score_threshold=least, iou_threshold=iou)
        figures = evaluate(detector, photographs)
        assert (figures.score_threshold, figures.iou_threshold) == (min(least, 0.02), iou)
    assert evaluate(detector, photographs, 0.9).score_threshold == 0.9


LINE = {"file": "images/a.png", "width": 640, "height": 384, "detections": []}


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([], "lacks 1 of 1, such as a.png"),
        ([LINE, LINE], ":2: images/a.png is a photograph that an earlier line has"),
        ([LINE | {"width": 384, "height": 640}], "of the same pixels .* got 384 x 640 and 640 x 384"),
        ([{"image_id": 1, "bbox": [1, 2, 3, 4], "score": 1}], ":1 must be a line of"),
        ([LINE | {"detections": [{"box": [1, 2, 3, 4], "score": None}]}], ":1: each score of .* finite"),
        ([LINE | {"detections": [{"box": [1, 2, 3], "score": 1}]}], ":1 must be a line of"),
        ([[LINE]], ":1 must be a line of"),
        ([{"file": "images/a.png", "error": "gone"}], "photographs with detections, got none"),
        (["", {"file": "b.png"}], "lacks 1 of 1"),
    ],
)
def test_lines_that_are_no_detections_are_named(
    photographs: list[LabelledImage], tmp_path: Path, lines: list[Any], words: str
) -> None:
    file = tmp_path / "found.jsonl"
    file.write_text("".join(f"{json.dumps(line) if line else ''}\n" for line in lines))
    with pytest.raises(InputError, match=words):
        evaluate_file(file, photographs)
    file.write_text(99_999 * "[")
    with pytest.raises(InputError, match=":1 must be a line of"):
        evaluate_file(file, photographs)


def test_photographs_of_one_name_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    images = []
    for folder in ("x", "y"):
        (tmp_path / folder / "images").mkdir(parents=True)
        Image.new("RGB", (64, 48)).save(tmp_path / f"{folder}.png")
        (tmp_path / folder / "images" / "1.png").symlink_to(tmp_path / f"{folder}.png")
        (tmp_path / folder / "x_bbx_gt.txt").write_text("1.png\n1\n10 10 20 20\n")
        images += read_labels([tmp_path / folder])[0]
    right = {"width": 64, "height": 48, "detections": [{"box": [10, 10, 30, 30], "score": 0.5}]}
    nothing = {**right, "detections": []}
    file = tmp_path / "found.jsonl"
    document = {
        "images": [{"file": "y\\images\\1.png", **nothing}, {"file": "/data/x/images/1.png", **right}]
    }
    file.write_text(json.dumps(document))
    scored = evaluate_file(file, images)
    assert [len(one.found.scores) for one in scored.matches.images] == [1, 0]
    document["images"][1]["file"] = "x.png"  # where the link leads
    file.write_text(json.dumps(document))
    assert evaluate_file(file, images).coco["AP"] == scored.coco["AP"]
    file.write_text(json.dumps({"file": "1.png", **right}))
    with pytest.raises(InputError, match=r"1\.png fits several photographs"):
        evaluate_file(file, images)
