"""The content of an artifact."""

import json
from pathlib import Path

import torch

from lensbox.model import FaceDetector, weights_sha256
from lensbox.runtime.file.metadata import ArtifactMetadata
from lensbox.runtime.loading import load_artifact
from lensbox.runtime.op_library import registered_schemas


def test_metadata_describes_the_artifact(detector: FaceDetector, artifact_path: Path) -> None:
    metadata = load_artifact(artifact_path).metadata
    values = json.loads(metadata.to_json())
    ops = ("geometry_of_windows", "fit", "masked_giou_loss", "padded_nms", "restore_boxes")
    expected = {
        "format_version": 2,
        "name": "face_detector",
        "torch_version": torch.__version__.split("+")[0],
        "weights_sha256": weights_sha256(detector),
        "defaults": {"score_threshold": 0.25, "iou_threshold": 0.4},
        "methods": ["preprocess", "detect", "restore", "loss"],
        "ops": sorted(str(registered_schemas(f"lensbox::{name}")[0]) for name in ops),
        "canvas": {
            "height": 256,
            "width": 256,
            "channels": 1,
            "fill": 0,
            "fit": "letterbox",
            "filter": "bilinear",
            "order": "rgb",
            "mean": [],
            "std": [],
        },
        "reading": {"orientation": "exif", "jpeg_oversampling": 2},
    }
    assert {name: values[name] for name in expected} == expected
    assert values["input"]["canvas"] == {"dtype": "uint8", "shape": ["B", 1, 256, 256]}
    assert values["output"]["counts"] == {"dtype": "int32", "shape": ["B"]}
    assert len(values["self_test"]["expected"]["scores"]) in range(1, 21)
    assert ArtifactMetadata.from_json(metadata.to_json()).to_json() == metadata.to_json()
