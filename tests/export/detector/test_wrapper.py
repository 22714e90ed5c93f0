"""Detectors from outside Lensbox become artifacts. `evaluation/test_evaluate.py` has one with own methods."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from picture_files import squares
from small_detectors import Brightest, Landmarks, RedAndBlue

from lensbox.export import save_artifact
from lensbox.runtime import Artifact, load_artifact


def saved(detector: Any, folder: Path) -> Artifact:
    save_artifact(detector, folder / "detector.pt")
    return load_artifact(folder / "detector.pt")


def test_smallest_detector_gets_all_methods(tmp_path: Path) -> None:
    artifact = saved(Brightest(), tmp_path)
    metadata = artifact.metadata
    assert not {"classes", "extras"} & set(json.loads(metadata.to_json()))
    assert metadata.methods == ("preprocess", "detect", "restore", "restore_points", "loss")
    ops = ("geometry_of_windows", "fit", "masked_giou_loss", "restore_boxes", "restore_points")
    schemas = (torch._C._jit_get_schemas_for_operator(f"lensbox::{name}")[0] for name in ops)
    assert metadata.ops == tuple(sorted(map(str, schemas)))
    image = torch.zeros(1, 128, 128, dtype=torch.uint8)
    image[0, 32:64, 96:128] = 200  # a cell of the canvas
    assert artifact.detect_image(image).boxes.tolist() == [[96, 32, 128, 64]]
    boxes = torch.tensor([[0.0, 0, 10, 10]])
    assert artifact.loss(boxes, boxes) == pytest.approx(0, abs=1e-6)


def test_two_classes_on_a_wide_canvas(tmp_path: Path) -> None:
    artifact = saved(RedAndBlue(), tmp_path)
    metadata = artifact.metadata
    assert metadata.classes == ("red", "blue")
    assert metadata.thresholds == (0.4, 0.3)
    assert metadata.output["labels"] == {"dtype": "int64", "shape": ["B", 30]}
    found = artifact.detect_image(squares(), 0.4, 0.1)
    assert found.labels is not None
    by_label = dict(zip(found.labels.tolist(), found.boxes.tolist(), strict=True))
    assert by_label[0] == pytest.approx([10, 20, 22, 32], abs=1)
    assert by_label[1] == pytest.approx([120, 60, 132, 72], abs=1)


def test_points_and_values_keep_their_names(tmp_path: Path) -> None:
    artifact = saved(Landmarks(width=6), tmp_path)
    metadata = artifact.metadata
    kinds = {"corners": ((2, 2), "points"), "embedding": ((6,), "values"), "cell": ((), "values")}
    assert {name: (extra.shape, extra.kind) for name, extra in metadata.extras.items()} == kinds
    output = {"dtype": "float32", "shape": ["B", 12, 2, 2], "unit": "canvas pixels, xy"}
    assert metadata.output["corners"] == output
    image = torch.zeros(1, 192, 512, dtype=torch.uint8)  # fitted to 128 x 48 pixels, 24 rows of padding above
    image[0, 64:96, 480:512] = 250
    canvases, geometry = artifact.module.preprocess([image])
    found = artifact.module.detect(canvases, 0.5, 0.5)
    corners = artifact.module.restore_points(found["corners"], geometry)
    assert corners[0, 0].tolist() == [[480, 64], [512, 96]]
    assert found["embedding"].shape == (1, 12, 6)
