"""COCO's figures are pycocotools', for what `lensbox detect` writes and labels of every layout."""

import contextlib
import io
import itertools
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from programs import Lensbox
from pycocotools.coco import COCO  # type: ignore[import, unused-ignore]
from pycocotools.cocoeval import COCOeval  # type: ignore[import, unused-ignore]
from scored_boxes import matched, random_case
from small_detectors import Changed, RedAndBlue

from lensbox.evaluation.average_precision import BANDS, Labels, Predictions
from lensbox.evaluation.figures import figures_of
from lensbox.export import save_artifact

NAMES = ("red", "blue")
PARTS = ("precision", "recall")


def coloured(**fields: Any) -> Changed:
    """Return a detector without classes, and with nearly no suppression."""
    detector = Changed(lambda found: {name: value for name, value in found.items() if name != "labels"})
    thresholds = {"iou_threshold": 0.9, "score_threshold": 0.001}
    detector.specification = replace(detector.specification, classes=(), **(thresholds | fields))
    return detector


def cropping() -> Changed:
    """Return one that crops photographs to its canvas, and finds equal scores."""
    detector = coloured(fit="crop", iou_threshold=0.2)
    detector.sharpness = 1e5
    return detector


MAKE: dict[str, Any] = {"classes": RedAndBlue, "coloured": coloured, "cropping": cropping}


def judged(
    truth: Sequence[Labels], detections: Sequence[Predictions], classes: int = 1
) -> tuple[Any, Any, list[float]]:
    """Return precision, recall and figures of pycocotools."""

    def place(index: int, box: Any, label: Any) -> dict[str, Any]:
        return {"image_id": index, "category_id": int(label), "bbox": _bbox(box)}

    rows = [
        {**place(index, box, label), "area": area, "iscrowd": flag}
        for index, image in enumerate(truth)
        for box, flag, label, area in zip(image.boxes, map(int, image.ignore), *image[2:], strict=True)
    ]
    results = [
        {**place(index, box, label), "score": float(score)}
        for index, image in enumerate(detections)
        for box, score, label in zip(*image, strict=True)
    ]
    return _judge(rows, results, range(len(truth)), range(classes))


def _judge(rows: list[Any], results: list[Any], images: Any, categories: Any) -> tuple[Any, Any, list[float]]:
    with contextlib.redirect_stdout(io.StringIO()):
        known = COCO()
        known.dataset = {
            "images": [{"id": id_} for id_ in images],
            "categories": [{"id": id_} for id_ in categories],
            "annotations": [{**row, "id": number} for number, row in enumerate(rows, 1)],
        }
        known.createIndex()
        evaluation = COCOeval(known, known.loadRes(results), "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    precision, recall = (np.where(evaluation.eval[name] < 0, np.nan, evaluation.eval[name]) for name in PARTS)
    return precision, recall, [np.nan if value < 0 else value for value in evaluation.stats.tolist()]


def _bbox(box: Any) -> list[float]:
    x1, y1, x2, y2 = map(float, box)
    return [x1, y1, x2 - x1, y2 - y1]


@pytest.mark.parametrize("seed", range(6))
def test_arrays_are_those_of_pycocotools(seed: int) -> None:
    """Classes, ignored boxes, areas, equal scores (odd seeds), more than 100 detections of a photograph."""
    classes, rng = 1 + seed % 3, np.random.default_rng(seed)
    truth, detections = random_case(seed)
    for index, image in enumerate(truth):
        kinds = rng.integers(0, classes, len(image.boxes))
        truth[index] = image._replace(classes=kinds, areas=image.areas * rng.uniform(0.5, 1.5, len(kinds)))
    for index, one in enumerate(detections):
        repeated = Predictions(*(np.concatenate([part] * (9 if index == 3 else 1)) for part in one))
        kinds = rng.integers(0, classes, len(repeated.scores))
        detections[index] = repeated._replace(classes=kinds)
    matches = matched(truth, detections, classes)
    precision, recall, figures = judged(truth, detections, classes)
    np.testing.assert_allclose(matches.coco()[0], precision, rtol=0, atol=1e-9)
    np.testing.assert_allclose(matches.coco()[1], recall, rtol=0, atol=1e-9)
    own = figures_of(matches, NAMES[:0]).coco
    assert list(own.values()) == pytest.approx(figures, abs=1e-9, nan_ok=True)
    assert matches.table().keys() == BANDS.keys()


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures of several sizes with red, blue and white squares, and their labels in three layouts."""
    root, rng = tmp_path_factory.mktemp("pictures"), np.random.default_rng(5)
    for part in ("images/a", "labels/a"):
        (root / part).mkdir(parents=True)
    rows: list[dict[str, Any]] = []
    images, wider = [], []
    for index in range(12):
        width, height = ((320, 192), (200, 300), (413, 277))[index % 3]
        pixels = rng.integers(0, 90, (height, width, 3), np.uint8)
        boxes = []
        for number in range(index % 4):
            side = int(rng.integers(14, 60))
            x, y = int(rng.integers(0, width - side)), int(rng.integers(0, height - side))
            pixels[y : y + side, x : x + side] = ((250, 10, 10), (10, 10, 250))[number % 2]
            boxes.append((x, y, side, side + int(rng.integers(-2, 3)), number % 2, (index + number) % 7 == 6))
        name = f"a/{index}.png"
        Image.fromarray(pixels).save(root / "images" / name)
        images.append({"id": 30 - index, "file_name": name, "width": width, "height": height})
        wider += [name, str(len(boxes))]
        shares = []
        for x, y, w, h, kind, crowd in boxes:
            row = {"image_id": 30 - index, "category_id": kind + 1, "bbox": [x, y, w, h], "area": w * h * 0.9}
            rows.append({**row, "iscrowd": int(crowd), "id": len(rows)})
            wider.append(f"{x} {y} {w} {h} 0 0 0 {int(crowd)} 0 0 {NAMES[kind]}")
            shares.append(f"{kind} {(x + w / 2) / width} {(y + h / 2) / height} {w / width} {h / height}")
        (root / "labels" / f"a/{index}.txt").write_text("\n".join(shares))
    categories = [{"id": 1, "name": "red"}, {"id": 2, "name": "blue"}, {"id": 3, "name": "root"}]
    coco = {"images": images, "annotations": rows, "categories": categories}
    (root / "coco.json").write_text(json.dumps(coco))
    (root / "x_bbx_gt.txt").write_text("\n".join(wider) + "\n")
    (root / "data.yaml").write_text("train: images\nval: images\nnames: [red, blue]\n")
    return root


# `make test` has each kind and each layout once.
QUICK = [("classes", "coco"), ("coloured", "yolo"), ("cropping", "wider"), ("faces", "coco")]


@pytest.mark.parametrize(
    ("kind", "layout"),
    [
        pytest.param(*pair, marks=[] if pair in QUICK else pytest.mark.exhaustive)
        for pair in itertools.product((*MAKE, "faces"), ("coco", "yolo", "wider"))
    ],
)
def test_the_figures_are_those_of_pycocotools_for_the_lines_of_detect(
    pictures: Path, tmp_path: Path, lensbox: Lensbox, shipped_path: Path, kind: str, layout: str
) -> None:
    """Also from a file of these lines, as other runtimes write them."""
    artifact = shipped_path if kind == "faces" else tmp_path / "detector.pt"
    if kind != "faces":
        save_artifact(MAKE[kind](), artifact)
    data = tmp_path / "only"
    data.mkdir()
    (data / "images").symlink_to(pictures / "images")
    (data / "labels").symlink_to(pictures / "labels")
    file = {"coco": "coco.json", "yolo": "data.yaml", "wider": "x_bbx_gt.txt"}[layout]
    (data / file).write_text((pictures / file).read_text())
    path = data if layout == "wider" else data / file
    lines, result = tmp_path / "found.jsonl", tmp_path / "figures.json"
    least = "0.02" if kind in ("classes", "faces") else "0.001"
    printed, _ = lensbox(
        "detect", "--artifact", artifact, "--score-threshold", least, "--recursive", data / "images"
    )
    lines.write_text(printed)
    printed, said = lensbox("evaluate", "--data", path, "--artifact", artifact, "--coco", "--json", result)
    figures = json.loads(result.read_text())

    coco = json.loads((pictures / "coco.json").read_text())
    ids = {row["file_name"]: row["id"] for row in coco["images"]}
    if layout != "coco":  # images in the order of the labels, boxes' own areas; YOLO has no crowds
        ids = {name: index for index, name in enumerate(sorted(ids) if layout == "yolo" else ids)}
        old = {row["id"]: row["file_name"] for row in coco["images"]}
        for row in coco["annotations"]:
            row |= {"image_id": ids[old[row["image_id"]]], "area": row["bbox"][2] * row["bbox"][3]}
            row["iscrowd"] *= layout == "wider"
    results = []
    for answer in map(json.loads, lines.read_text().splitlines()):
        for one in answer["detections"]:
            place = {"image_id": ids["a/" + Path(answer["file"]).name], "bbox": _bbox(one["box"])}
            label = NAMES.index(one["label"]) + 1 if kind == "classes" else 1
            results.append({**place, "category_id": label, "score": one["score"]})
    if kind != "classes":
        coco["annotations"] = [{**row, "category_id": 1} for row in coco["annotations"]]
    _, _, expected = _judge(coco["annotations"], results, ids.values(), [1, 2])
    own = [np.nan if value is None else value for value in figures["coco"].values()]
    assert own == pytest.approx(expected, abs=1e-9, nan_ok=True)
    assert figures["coco"]["AP50"] > 0 or kind == "faces"
    assert figures["score_threshold"] == float(least)
    assert "photographs used" in said
    assert printed.splitlines()[-12].endswith(f"= {expected[0]:.3f}")

    again = tmp_path / "again.json"
    lensbox("evaluate", "--data", path, "--detections", lines, "--artifact", artifact, "--json", again)
    read = json.loads(again.read_text())
    for name in ("average_precision", "coco", "recommended_threshold", "classes", "canvas"):
        same = read[name] == figures[name] or (name == "classes" and set(read[name]) == set(figures[name]))
        assert same, name
