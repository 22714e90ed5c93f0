"""POST /v1/evaluate: at which IoU a detection hits, and COCO's average precision."""

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import PIL.Image
import pytest
from problems import problem_of
from user_detectors import RedAndBlue

from lensbox.export.pipeline import save_artifact
from lensbox.runtime import load_artifact
from lensbox.train.average_precision import Evaluation, ImageDetections, ImageLabels

RED, BLUE = (250, 10, 10), (10, 10, 240)
CLASSES = ("red", "blue")


def _form(files: Sequence[bytes], targets: Any) -> dict[str, Any]:
    return {"files": [("image", file) for file in files], "data": {"targets": json.dumps(targets)}}


@pytest.fixture
def one_box(
    start_service: Callable[..., Any],
    fake: Any,
    monkeypatch: pytest.MonkeyPatch,
    wait_until: Callable[..., None],
) -> httpx.Client:
    """A service that finds [1, 2, 3, 4] with a score of 0.5 in each image."""
    monkeypatch.setattr(fake.metadata, "score_threshold", 0.3, raising=False)
    client: httpx.Client = start_service(lambda: fake).client
    wait_until(lambda: client.get("/readyz").status_code == 200)
    return client


def test_by_hand(one_box: httpx.Client, png: bytes) -> None:
    """The second box has an IoU of 2 · 2 / (2 · 2.6) = 0.769.

    It is hit at the first six of COCO's ten IoUs. At the others precision is 1 up to recall 1/2, at 51 of 101
    recalls; its detection, with the same score, comes later.
    """
    form = _form([png, png], [[[1, 2, 3, 4]], [[1, 2, 3, 4.6]]])
    ask = one_box.post
    default = ask("/v1/evaluate", **form).json()
    assert (default["match_iou"], default["hits"], default["false_alarms"]) == (0.5, 2, 0)
    assert default["average_precision"] == 1
    assert default["average_precision_50_95"] == pytest.approx((6 + 4 * 51 / 101) / 10)

    strict = ask("/v1/evaluate?match_iou=0.8", **form).json()
    assert (strict["match_iou"], strict["hits"], strict["false_alarms"], strict["misses"]) == (0.8, 1, 1, 1)
    assert [image["missed"] for image in strict["images"]] == [[], [0]]
    assert strict["average_precision"] == 0.5
    assert strict["average_precision_50_95"] == default["average_precision_50_95"]

    # 2 · 2 / (2 · 20) = 0.1
    far = _form([png], [[[1, 2, 3, 22]]])
    assert [ask(f"/v1/evaluate?match_iou={iou}", **far).json()["hits"] for iou in (0.09, 0.11)] == [1, 0]


def test_the_parameter_may_stand_in_json(one_box: httpx.Client) -> None:
    question = {"images": [{"data": "", "targets": []}], "match_iou": 1}
    assert one_box.post("/v1/evaluate", json=question).json()["match_iou"] == 1
    twice = one_box.post("/v1/evaluate?match_iou=0.5", json=question)
    assert problem_of(twice)["message"] == "match_iou must be given in the query or in the body, got both"


@pytest.mark.parametrize("value", ["0", "-1", "1.01", "nan", "high"])
def test_what_is_no_iou_is_refused(one_box: httpx.Client, png: bytes, value: str) -> None:
    response = one_box.post(f"/v1/evaluate?match_iou={value}", **_form([png], [[]]))
    assert (response.status_code, problem_of(response)["code"]) == (422, "invalid_parameter")
    assert problem_of(response)["message"].startswith("match_iou must be ")
    assert value in problem_of(response)["message"]


def test_it_is_not_a_parameter_of_detection(one_box: httpx.Client, png: bytes) -> None:
    assert one_box.post("/v1/detect?match_iou=0.5", content=png).status_code == 422


def test_figures_are_those_of_scoring(
    tmp_path: Path, start_service: Callable[..., Any], wait_until: Callable[..., None]
) -> None:
    """Of each class, and their means, from what /v1/detect finds in the same images."""
    detector: Any = RedAndBlue()
    save_artifact(detector, tmp_path / "detector.pt")
    client = start_service(lambda: load_artifact(tmp_path / "detector.pt")).client
    wait_until(lambda: client.get("/readyz").status_code == 200)
    files, targets = [], []
    for index, (x, y) in enumerate(((10, 20), (50, 30), (90, 60))):
        picture = PIL.Image.new("RGB", (160, 96), (110, 110, 110))
        picture.paste(RED, (x, y, x + 12, y + 12))
        picture.paste(BLUE, (y, x % 70, y + 12, x % 70 + 12))
        picture.save(tmp_path / "picture.png")
        files.append((tmp_path / "picture.png").read_bytes())
        red = {"box": [x + index, y, x + 12 + index, y + 12], "label": "red"}
        blue = {"box": [y, x % 70, y + 12, x % 70 + 12 + 3 * index], "label": "blue"}
        targets.append([red, blue])
    detections = []
    for file in files:
        found = client.post("/v1/detect?score_threshold=0.02", content=file).json()["detections"]
        boxes = np.array([one["box"] for one in found])
        scores, names = np.array([one["score"] for one in found]), [one["label"] for one in found]
        detections.append(ImageDetections(boxes, scores, np.array([CLASSES.index(name) for name in names])))
    labels = [
        ImageLabels(
            np.array([box["box"] for box in image], float),
            np.zeros(len(image), bool),
            np.array([CLASSES.index(box["label"]) for box in image]),
        )
        for image in targets
    ]
    matched = Evaluation(labels, detections, 0.3)
    means = set()
    for match_iou in (0.3, 0.6, 0.85):
        answer = client.post(f"/v1/evaluate?match_iou={match_iou}", **_form(files, targets)).json()
        for label, name in enumerate(CLASSES):
            curve = matched.curve(0, math.inf, label, match_iou)
            of_class = answer["classes"][name]
            assert of_class["average_precision"] == pytest.approx(curve.average_precision())
            assert of_class["average_precision_50_95"] == pytest.approx(matched.coco_average_precision(label))
            assert of_class["hits"] == int(curve.hits[curve.scores > answer["score_threshold"]].sum())
        for figure in ("average_precision", "average_precision_50_95"):
            of_classes = [of_class[figure] for of_class in answer["classes"].values()]
            assert answer[figure] == pytest.approx(np.mean(of_classes))
        means.add(answer["average_precision"])
    assert len(means) > 1
    assert 0 < answer["average_precision_50_95"] < 1
