"""POST /v1/evaluate: detections against given boxes."""

import base64
import io
import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import PIL.Image
import pytest
import torch
from box_reference import loss_reference
from problems import problem_of
from user_detectors import RedAndBlue

from lensbox.export.pipeline import save_artifact
from lensbox.runtime import Artifact, load_artifact

Box = Sequence[float]


def picture(*squares: tuple[int, int, tuple[int, int, int]]) -> bytes:
    """A PNG of 160 x 96 pixels with squares of 12 pixels."""
    pixels = np.full((96, 160, 3), 110, np.uint8)
    for x, y, color in squares:
        pixels[y : y + 12, x : x + 12] = color
    file = io.BytesIO()
    PIL.Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


RED, BLUE = (250, 10, 10), (10, 10, 240)
PICTURES = [
    picture((10, 20, RED), (120, 60, BLUE)),
    picture((40, 40, RED), (100, 10, RED)),
    picture((70, 50, BLUE)),
    picture(),
]
# Of the first both; of the second one is missed, one found; the third is of another class; the fourth has a
# box that is not there, and one that does not count.
TARGETS: list[list[Any]] = [
    [
        {"box": [10, 20, 22, 32], "label": "red"},
        {"box": [121, 61, 133, 73], "label": "blue"},
    ],
    [{"box": [40, 41, 52, 53], "label": "red"}, {"box": [20, 70, 32, 82], "label": "red", "ignore": False}],
    [{"box": [70, 50, 82, 62], "label": "red"}],
    [{"box": [5, 5, 30, 30], "label": "blue"}, {"box": [60, 60, 90, 90], "label": "blue", "ignore": True}],
]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("red_and_blue") / "detector.pt"
    detector: Any = RedAndBlue()
    save_artifact(detector, path)
    return path


@pytest.fixture
def colors(path: Path, start_service: Callable[..., Any], wait_until: Callable[..., None]) -> httpx.Client:
    client: httpx.Client = start_service(lambda: load_artifact(path)).client
    wait_until(lambda: client.get("/readyz").status_code == 200)
    return client


def as_form(files: Sequence[bytes], targets: Any) -> dict[str, Any]:
    images = [("image", (f"{index}.png", file)) for index, file in enumerate(files)]
    return {"files": images, "data": {"targets": json.dumps(targets)}}


def as_json(files: Sequence[bytes], targets: Sequence[Any], **more: Any) -> dict[str, Any]:
    images = [
        {"data": base64.b64encode(file).decode(), "targets": boxes}
        for file, boxes in zip(files, targets, strict=True)
    ]
    return {"json": {"images": images, **more}}


def iou(a: Box, b: Box) -> float:
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    inter = max(width, 0) * max(height, 0)
    return inter / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - inter)


def reference(found: list[dict[str, Any]], targets: list[dict[str, Any]], threshold: float) -> dict[str, Any]:
    """Greedy matching of one image, in plain Python: the best detection first takes the best box left."""
    pairs: list[tuple[Box, Box]] = []
    marks: list[tuple[float, bool]] = []
    taken: set[int] = set()
    false_alarms = 0
    for one in found:
        if one["score"] <= threshold:
            continue
        good = [
            (iou(one["box"], target["box"]), -index)
            for index, target in enumerate(targets)
            if target["label"] == one["label"] and iou(one["box"], target["box"]) >= 0.5
        ]
        left = [pair for pair in good if -pair[1] not in taken and not targets[-pair[1]].get("ignore")]
        if left:
            taken.add(-max(left)[1])
            pairs.append((one["box"], targets[-max(left)[1]]["box"]))
            marks.append((one["score"], True))
        elif not any(targets[-index].get("ignore") for _, index in good):
            false_alarms += 1
            marks.append((one["score"], False))
    missed = [
        index for index, target in enumerate(targets) if not target.get("ignore") and index not in taken
    ]
    return {
        "hits": len(taken),
        "false_alarms": false_alarms,
        "misses": len(missed),
        "missed": missed,
        "pairs": pairs,
        "marks": marks,
    }


@pytest.mark.parametrize("form", [False, True])
@pytest.mark.parametrize("threshold", [None, 0.2, 0.7])
def test_figures_are_those_of_the_reference(
    colors: httpx.Client, path: Path, form: bool, threshold: float | None
) -> None:
    query = {"iou_threshold": 0.1, **({} if threshold is None else {"score_threshold": threshold})}
    body = as_form(PICTURES, TARGETS) if form else as_json(PICTURES, TARGETS)
    response = colors.post("/v1/evaluate", params=query, **body)
    assert response.status_code == 200
    answer = response.json()

    at = 0.4 if threshold is None else threshold  # the artifact's own
    found = [
        colors.post("/v1/detect?score_threshold=0.02&iou_threshold=0.1", content=file).json()["detections"]
        for file in PICTURES
    ]
    expected = [reference(*image, at) for image in zip(found, TARGETS, strict=True)]
    for image, wanted in zip(answer["images"], expected, strict=True):
        pairs, marks = wanted.pop("pairs"), wanted.pop("marks")
        loss = image.pop("loss")
        assert image == {"width": 160, "height": 96, **wanted}
        if pairs:
            boxes = torch.tensor(pairs, dtype=torch.float64)
            assert loss == pytest.approx(float(loss_reference(boxes[:, 0], boxes[:, 1])), rel=1e-9)
        else:
            assert loss is None
        wanted |= {"pairs": pairs, "marks": marks}
    sums = {key: sum(image[key] for image in expected) for key in ("hits", "false_alarms", "misses")}
    assert {key: answer[key] for key in sums} == sums
    assert answer["score_threshold"] == at
    hits = sums["hits"]
    count = hits + sums["false_alarms"]
    assert answer["precision"] == (pytest.approx(hits / count) if count else None)
    assert answer["recall"] == pytest.approx(hits / 6)
    every = torch.tensor([pair for image in expected for pair in image["pairs"]], dtype=torch.float64)
    assert answer["loss"] == pytest.approx(float(loss_reference(every[:, 0], every[:, 1])), rel=1e-9)
    for counts in answer["thresholds"]:
        again = [reference(*image, counts["score_threshold"]) for image in zip(found, TARGETS, strict=True)]
        assert counts["hits"] == sum(image["hits"] for image in again)
        assert counts["false_alarms"] == sum(image["false_alarms"] for image in again)
    assert (answer["evaluated"], answer["match_iou"]) == (4, 0.5)
    if threshold is None:
        assert hits >= 3
        assert expected[1]["missed"] == [1]
        assert expected[2]["misses"] == expected[2]["false_alarms"] == 1  # blue where red was wanted
        assert expected[3]["misses"] == 1


def test_average_precision(colors: httpx.Client) -> None:
    """Area under the precision-recall curve made monotone, by the definition, mean of the classes."""
    answer = colors.post("/v1/evaluate", **as_json(PICTURES, TARGETS)).json()
    found = [
        colors.post("/v1/detect?score_threshold=0.02", content=file).json()["detections"] for file in PICTURES
    ]
    precisions = {}
    for label in ("red", "blue"):
        own = [[one for one in image if one["label"] == label] for image in found]
        wanted = [[target for target in image if target["label"] == label] for image in TARGETS]
        total = sum(not target.get("ignore") for image in wanted for target in image)
        marks = [mark for image in zip(own, wanted, strict=True) for mark in reference(*image, 0.0)["marks"]]
        hits = np.cumsum([hit for _, hit in sorted(marks, key=lambda mark: -mark[0])])
        recalls, shares = hits / total, hits / np.arange(1, len(hits) + 1)
        steps = np.diff([0.0, *recalls])
        precisions[label] = sum(step * shares[rank:].max() for rank, step in enumerate(steps))
        of_class = answer["classes"][label]
        assert of_class["average_precision"] == pytest.approx(precisions[label])
        assert of_class["boxes"] == total
    assert answer["average_precision"] == pytest.approx(np.mean(list(precisions.values())))
    assert 0 < answer["average_precision"] < 1
    one = colors.post("/v1/evaluate?iou_threshold=0.1", **as_json(PICTURES[:1], TARGETS[:1])).json()
    assert one["average_precision"] is None
    assert (one["hits"], one["false_alarms"], one["misses"]) == (2, 0, 0)


def test_a_bad_image_counts_for_nothing(colors: httpx.Client) -> None:
    good = colors.post("/v1/evaluate", **as_json(PICTURES[:2], TARGETS[:2])).json()
    files, targets = [PICTURES[0], b"no image", PICTURES[1]], [TARGETS[0], TARGETS[1], TARGETS[1]]
    for body in (as_form(files, targets), as_json(files, targets)):
        answer = colors.post("/v1/evaluate", **body).json()
        first, bad, second = answer.pop("images")
        for image, expected in zip((first, second), good["images"], strict=True):
            # Sums are taken in another order in another batch size.
            assert image.pop("loss") == pytest.approx(expected["loss"], rel=1e-5)
            assert image == {key: value for key, value in expected.items() if key != "loss"}
        assert bad["error"]["code"] == "undecodable_image"
        assert answer["evaluated"] == 2
        assert answer["hits"] == good["hits"]
    nothing = colors.post("/v1/evaluate", **as_json([b"no image"], [TARGETS[0]])).json()
    assert (nothing["evaluated"], nothing["hits"], nothing["misses"]) == (0, 0, 0)
    assert (
        nothing["precision"] is nothing["recall"] is nothing["loss"] is nothing["average_precision"] is None
    )


def test_a_detector_without_classes(client: httpx.Client, artifact: Artifact, png: bytes) -> None:
    """Its own detections as boxes to find, as plain lists: all are found."""
    found = client.post("/v1/detect", content=png).json()["detections"]
    # Random weights give boxes without an area, too.
    boxes = [box for one in found if (box := one["box"])[0] < box[2] and box[1] < box[3]]
    answer = client.post("/v1/evaluate", **as_form([png, png], [boxes, []])).json()
    assert answer["images"][0]["hits"] == len(boxes) > 0
    assert answer["images"][0]["missed"] == []
    assert answer["images"][0]["loss"] == pytest.approx(0, abs=1e-4)
    assert answer["images"][1]["false_alarms"] == len(found)
    assert answer["score_threshold"] == artifact.metadata.score_threshold
    assert "classes" not in answer


def test_a_model_without_a_loss(
    start: Callable[..., Any],
    fake: Any,
    monkeypatch: pytest.MonkeyPatch,
    png: bytes,
) -> None:
    monkeypatch.setattr(fake.metadata, "methods", ("preprocess", "detect", "restore"))
    monkeypatch.setattr(fake.metadata, "score_threshold", 0.3, raising=False)
    client = start().client
    answer = client.post("/v1/evaluate", **as_form([png], [[[1, 2, 3, 4]]])).json()
    assert (answer["hits"], answer["loss"], answer["images"][0]["loss"]) == (1, None, None)
    assert [name for name, _ in fake.calls] == ["detect"]
    assert fake.calls[0][1][1] == 0.02


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        ({}, "targets must be an array with the boxes of each of 1 images, got {}"),
        ([], "got 0 of them"),
        ([[], []], "got 2 of them"),
        ([7], "targets[0] must be an array of boxes, got 7"),
        ([[7]], 'targets[0][0] must be [x1, y1, x2, y2] or {"box": that'),
        ([[{"label": "red"}]], 'targets[0][0] must be [x1, y1, x2, y2] or {"box": that'),
        ([[{"box": [0, 0, 1, 1], "score": 1}]], 'targets[0][0] must be [x1, y1, x2, y2] or {"box": that'),
        ([[{"box": [0, 0, 1, 1], "label": "green"}]], "model's classes, 'red', 'blue', got 'green'"),
        ([[[0, 0, 1, 1]]], "model's classes, 'red', 'blue', got None"),
        ([[{"box": [0, 0, 1, 1], "label": ["red"]}]], "got ['red']"),
        (
            [[{"box": [0, 0, 0, 1], "label": "red"}]],
            "targets[0][0] must have x1 < x2 and y1 < y2, got [0, 0,",
        ),
        ([[{"box": [0, 0, 1, 1], "label": "red", "ignore": 1}]], "ignore of targets[0][0] must be true or"),
    ],
)
def test_targets_that_are_none(colors: httpx.Client, targets: Any, message: str) -> None:
    response = colors.post("/v1/evaluate", **as_form(PICTURES[:1], targets))
    assert response.status_code == 422
    assert problem_of(response)["code"] == "invalid_targets"
    assert message in problem_of(response)["message"]


def test_boxes_that_are_none(client: httpx.Client, png: bytes) -> None:
    for targets, message in (
        ([[[0, 0, 1]]], "targets[0][0] must be a box [x1, y1, x2, y2], got [0, 0, 1]"),
        ([[[0, 0, "1", 1]]], "x2 of targets[0][0] must be a finite number, got '1'"),
    ):
        response = client.post("/v1/evaluate", **as_form([png], targets))
        assert (response.status_code, problem_of(response)["message"]) == (422, message)
    labelled = client.post("/v1/evaluate", **as_form([png], [[{"box": [0, 0, 1, 1], "label": "face"}]]))
    assert problem_of(labelled)["message"].endswith("as the model has no classes, got 'face'")
    many = client.post("/v1/evaluate", **as_form([png], [[[0, 0, 1, 1]] * 4097]))
    assert (many.status_code, problem_of(many)["code"]) == (413, "too_many_boxes")


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"content": b"\x89PNG"}, 415, "unsupported_body"),
        ({"files": {"image": b"x"}}, 422, "invalid_form"),
        ({"files": {"targets": b"[]"}}, 422, "invalid_form"),
        ({"files": {"image": b"x", "targets": b"[[]]", "more": b""}}, 422, "invalid_form"),
        ({"files": [("image", b"x")] * 40}, 413, "too_many_images"),
        ({"files": {"image": b"x", "targets": b"[" * 100_000}}, 422, "invalid_json"),
        ({"files": {"image": b"x", "targets": b"[]" * 100_000}}, 413, "too_many_images"),
        ({"files": {"image": b"x", "targets": b'{"a":' * 100_000}}, 413, "too_many_images"),
        ({"files": {"image": b"x", "targets": b"\xff\x00"}}, 422, "invalid_json"),
        ({"json": {"images": [{"data": ""}]}}, 422, "invalid_targets"),
        ({"json": {"images": [{"targets": []}]}}, 422, "invalid_images"),
        ({"json": {"images": [{"data": "", "targets": []}], "x": 1}}, 422, "invalid_parameter"),
        ({"json": []}, 422, "invalid_images"),
        ({"content": b""}, 400, "empty_body"),
    ],
)
def test_bad_bodies(client: httpx.Client, body: dict[str, Any], status: int, code: str) -> None:
    response = client.post("/v1/evaluate", **body)
    assert (response.status_code, problem_of(response)["code"]) == (status, code)
    assert client.get("/readyz").status_code == 200


def test_random_bytes(client: httpx.Client) -> None:
    source = random.Random(0)
    for content_type in ("application/json", "multipart/form-data; boundary=b"):
        for size in (1, 100, 100_000):
            headers = {"Content-Type": content_type}
            response = client.post("/v1/evaluate", content=source.randbytes(size), headers=headers)
            assert problem_of(response)["code"] in ("invalid_json", "malformed_form")


def test_many_boxes_in_one_place_are_matched_in_time(
    path: Path, start_service: Callable[..., Any], wait_until: Callable[..., None]
) -> None:
    """As many boxes as there may be, over each other and over as many detections, do not stop the service."""
    client = start_service(lambda: load_artifact(path)).client
    wait_until(lambda: client.get("/readyz").status_code == 200)
    targets = [[{"box": [10, 20, 22, 32], "label": "red"}] * 2048] * 2
    query = {"iou_threshold": 1, "score_threshold": 0}
    answer = client.post("/v1/evaluate", params=query, **as_form(PICTURES[:1] * 2, targets)).json()
    assert answer["hits"] >= 2
    assert answer["hits"] + answer["misses"] == 4096
