"""SAHI around the same artifact: the peer in `lensbox bench tiles`."""

from typing import Any

import numpy as np
import torch
from sahi.models.base import DetectionModel
from sahi.predict import get_sliced_prediction
from sahi.prediction import ObjectPrediction
from sahi.utils.compatibility import fix_full_shape_list, fix_shift_amount_list
from torch import Tensor

from lensbox.common.tile_spec import TileSpec
from lensbox.runtime.artifact import Artifact
from lensbox.runtime.detection import Detections


class SahiArtifact(DetectionModel):  # type: ignore[misc]
    """An artifact as SAHI's documented base class wants it, with batches."""

    def set_model(self, model: Artifact, **_: Any) -> None:
        """Take the artifact."""
        self.model = model

    def perform_inference(self, image: np.ndarray[Any, Any]) -> None:
        """Detect in one slice, uint8 [H, W, C]."""
        self.perform_batch_inference([image])

    def perform_batch_inference(self, images: list[np.ndarray[Any, Any]]) -> None:
        """Detect in slices, uint8 [H, W, C], in one batch."""
        tensors = [torch.from_numpy(image).permute(2, 0, 1) for image in images]
        self._original_predictions = self.model.detect_images(tensors, self.confidence_threshold)

    def _create_object_prediction_list_from_original_predictions(
        self, shift_amount_list: Any = None, full_shape_list: Any = None
    ) -> None:
        found: list[Detections] = self._original_predictions
        shifts, sizes = fix_shift_amount_list(shift_amount_list), fix_full_shape_list(full_shape_list)
        self._object_prediction_list_per_image = [
            [
                ObjectPrediction(
                    bbox=box,
                    category_id=0,
                    category_name="face",
                    score=score,
                    shift_amount=shift,
                    full_shape=size,
                )
                for box, score in zip(one.boxes.tolist(), one.scores.tolist(), strict=True)
            ]
            for one, shift, size in zip(found, shifts, sizes, strict=True)
        ]


def sahi_detect(artifact: Artifact, pixels: Tensor, batch: int) -> int:
    """Detect in slices of a photograph, uint8 [C, H, W] on the CPU; return the number of detections.

    Slices have the canvas's size and the overlap of `TileSpec`, and the whole photograph is a slice too.
    """
    canvas, overlap = artifact.metadata.canvas, TileSpec().overlap
    model = SahiArtifact(model=artifact, confidence_threshold=artifact.metadata.score_threshold)
    image = pixels.expand(3, -1, -1).permute(1, 2, 0).contiguous().numpy()  # SAHI takes RGB alone
    found = get_sliced_prediction(
        image,
        model,
        canvas.height,
        canvas.width,
        overlap,
        overlap,
        postprocess_type="NMS",
        postprocess_match_metric="IOU",
        postprocess_match_threshold=artifact.metadata.iou_threshold,
        verbose=0,
        batch_size=batch,
    )
    return len(found.object_prediction_list)
