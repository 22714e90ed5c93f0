"""The proof that a model with fixed thresholds finds what the detector finds."""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from lensbox.artifact.metadata import ArtifactMetadata
from lensbox.common.errors import ArtifactError
from lensbox.export.detect_proof import compare_batches
from lensbox.export.detections_check import Agreement
from lensbox.export.proof_canvases import BATCHES, proof_canvases
from lensbox.export.self_test_builder import one_thread
from lensbox.model import Detector
from lensbox.model.protocol_check import named


@torch.no_grad()
def prove_fixed(
    detector: Detector,
    run: Callable[[Tensor], Mapping[str, Tensor]],
    metadata: ArtifactMetadata,
    pictures: Sequence[Tensor],
    name: str,
) -> None:
    """Compares a model with its detector at the metadata's default thresholds, in every size of batch.

    run: canvases uint8 [B, c, h, w] to outputs by name. pictures: uint8 [C, H, W], beside those of every
    proof. Raises ArtifactError, which calls the model `name`, where they differ by more than rounding.
    """
    thresholds = metadata.score_threshold, metadata.iou_threshold
    canvases = proof_canvases(detector, [metadata.self_test.image, *pictures])
    dtypes = {output: str(value.dtype).removeprefix("torch.") for output, value in run(canvases[:1]).items()}
    wanted = {output: metadata.output[output]["dtype"] for output in dtypes}
    if dtypes != wanted:
        raise ArtifactError(f"{name} must have outputs of the dtypes {wanted}, got {dtypes}")
    agreement = Agreement()
    with one_thread():
        expected = [named(detector.detect(canvas[None], *thresholds)) for canvas in canvases]
        for batch in BATCHES:
            compare_batches(agreement, expected, lambda images, *_: run(images), canvases, thresholds, batch)
    if failures := agreement.verdict():
        raise ArtifactError(f"{name} does not find what the detector finds: {failures}")
