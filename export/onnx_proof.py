"""The proof that an ONNX file finds what the detector finds; without it, none is written."""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from lensbox.export.detections_check import Agreement, Answer
from lensbox.export.onnx_exporter import OnnxExportError
from lensbox.export.proof_canvases import BATCHES, proof_canvases
from lensbox.model import Detector
from lensbox.model.protocol_check import named
from lensbox.runtime.artifact import Artifact

_BATCHES_ELSEWHERE = (7,)


@torch.no_grad()
def prove(detector: Detector, artifact: Artifact, pictures: Sequence[Tensor]) -> Agreement:
    """Compares an artifact with its detector in float32, on the CPU, in batches of 1, 2, 7 and 32.

    pictures: uint8 [C, H, W], beside the self-test's, drawn ones and noise. The thresholds are the defaults,
    others to find more, and those of the self-test. Raises OnnxExportError where they differ by more than
    rounding, or where the self-test fails.
    """
    metadata = artifact.metadata
    test = metadata.self_test
    report = artifact.self_test()
    if not report.passed:
        raise OnnxExportError(f"the ONNX file fails its self-test: {'; '.join(report.failures)}")
    canvases = proof_canvases(detector, [test.image, *pictures])
    default, overlap = metadata.score_threshold, metadata.iou_threshold
    agreement = Agreement()
    for thresholds, batches in (
        ((default / 10, overlap), BATCHES),
        ((default / 10, overlap / 2), _BATCHES_ELSEWHERE),
        ((default, overlap), _BATCHES_ELSEWHERE),
        ((test.score_threshold, test.iou_threshold), _BATCHES_ELSEWHERE),
    ):
        expected = [named(detector.detect(canvas[None], *thresholds)) for canvas in canvases]
        for batch in batches:
            compare_batches(agreement, expected, artifact.module.detect_named, canvases, thresholds, batch)
    if failures := agreement.verdict():
        raise OnnxExportError(f"the ONNX file does not find what the detector finds: {failures}")
    return agreement


def compare_batches(
    agreement: Agreement,
    expected: Sequence[Mapping[str, Tensor]],
    detect_named: Callable[[Tensor, float, float], Mapping[str, Tensor]],
    canvases: Tensor,
    thresholds: tuple[float, float],
    batch: int,
) -> None:
    """Adds to `agreement` what a runtime finds on the canvases in batches of one size.

    expected: what the detector finds on each of them alone.
    """
    for first in range(0, len(canvases), batch):
        found = detect_named(canvases[first : first + batch], *thresholds)
        for index in range(len(found["counts"])):
            wanted = expected[first + index]
            agreement.compare(
                _of_image(wanted, 0),
                _of_image(found, index),
                thresholds[0],
                wanted["scores"].shape[1],
                f"canvas {first + index} in a batch of {batch}, thresholds {thresholds[0]:g} and "
                f"{thresholds[1]:g}",
            )


def _of_image(found: Mapping[str, Tensor], index: int) -> Answer:
    count = int(found["counts"][index])
    return {name: value[index, :count] for name, value in found.items() if name != "counts"}
