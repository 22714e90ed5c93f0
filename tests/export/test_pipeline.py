"""The content of an artifact."""

import json
from pathlib import Path

import torch

from lensbox.model import FaceDetector, weights_sha256
from lensbox.runtime import Canvas, load_artifact


def test_metadata_describes_the_artifact(detector: FaceDetector, artifact_path: Path) -> None:
    metadata = load_artifact(artifact_path).metadata
    values = json.loads(metadata.to_json())
    ops = ("geometry_of_windows", "fit", "masked_giou_loss", "padded_nms", "restore_boxes", "restore_points")
    expected = {
        "format_version": 3,
        "name": "face_detector",
        "torch_version": torch.__version__.split("+")[0],
        "weights_sha256": weights_sha256(detector),
        "defaults": {"score_threshold": 0.25, "iou_threshold": 0.4},
        "methods": ["preprocess", "detect", "restore", "restore_points", "loss"],
        "ops": sorted(str(torch._C._jit_get_schemas_for_operator(f"lensbox::{name}")[0]) for name in ops),
        "reading": {"orientation": "exif", "jpeg_oversampling": 2},
    }
    assert {name: values[name] for name in expected} == expected
    assert metadata.canvas == Canvas(256, 256, 1, 0)
    assert values["input"]["canvas"] == {"dtype": "uint8", "shape": ["B", 1, 256, 256]}
    assert values["output"]["counts"] == {"dtype": "int32", "shape": ["B"]}
    assert len(values["self_test"]["expected"]["scores"]) in range(1, 21)
