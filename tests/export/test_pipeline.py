"""Artifacts: their content; a failed export writes nothing."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from lensbox.common.errors import InputError
from lensbox.export.pipeline import save_artifact
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


def test_failed_export_leaves_the_old_artifact(
    detector: FaceDetector, artifact_path: Path, tmp_path: Path
) -> None:
    path = tmp_path / "detector.pt"
    shutil.copy(artifact_path, path)
    blind = FaceDetector(detector.config).eval()
    for parameter in blind.parameters():
        torch.nn.init.constant_(parameter, torch.nan)
    with pytest.raises(InputError, match="cannot be exported: the weights must be finite"):
        save_artifact(blind, path)
    with pytest.raises(ValueError, match="score_threshold must be between 0 and 1, got -1"):
        save_artifact(detector, path, score_threshold=-1)
    assert path.read_bytes() == artifact_path.read_bytes()
    assert [file.name for file in tmp_path.iterdir()] == ["detector.pt"]


def test_export_does_not_change_the_detector(detector: FaceDetector, tmp_path: Path) -> None:
    detector.train()
    before = weights_sha256(detector)
    try:
        save_artifact(detector, tmp_path / "detector.pt")
        assert detector.training
    finally:
        detector.eval()
    assert weights_sha256(detector) == before
