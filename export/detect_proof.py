"""The proof that a file finds what the detector finds; without it, none is written."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch import Tensor

from lensbox.common.errors import ArtifactError
from lensbox.export.detections_check import Agreement, Answer
from lensbox.export.proof_canvases import BATCHES, proof_canvases
from lensbox.model import Detector
from lensbox.model.protocol_check import named, slots_of
from lensbox.runtime.artifact import Artifact
from lensbox.runtime.gpu_float32 import gpu_float32

_BATCHES_ELSEWHERE = (7,)


@torch.no_grad()
def prove(
    detector: Detector,
    artifact: Artifact,
    pictures: Sequence[Tensor],
    kind: str,
    batches: Sequence[int] = BATCHES,
) -> Agreement:
    """Compares an artifact in float32 with its detector, on the artifact's device, in batches of these sizes.

    detector: on that device, too. pictures: uint8 [C, H, W], beside the self-test's, drawn ones and noise.
    kind: what the file is, for errors. The thresholds are the defaults, others to find more, and those of the
    self-test. Raises ArtifactError where they differ by more than rounding, or where the self-test fails.
    """
    metadata = artifact.metadata
    test = metadata.self_test
    report = artifact.self_test()
    if not report.passed:
        raise ArtifactError(f"the {kind} fails its self-test: {'; '.join(report.failures)}")
    canvases = proof_canvases(detector, [test.image, *pictures]).to(artifact.device)
    default, overlap = metadata.score_threshold, metadata.iou_threshold
    agreement = Agreement()
    for thresholds, sizes in (
        ((default / 10, overlap), batches),
        ((default / 10, overlap / 2), _BATCHES_ELSEWHERE),
        ((default, overlap), _BATCHES_ELSEWHERE),
        ((test.score_threshold, test.iou_threshold), _BATCHES_ELSEWHERE),
    ):
        with gpu_float32(artifact.device, tf32=False):
            expected = [named(detector.detect(canvas[None], *thresholds)) for canvas in canvases]
            for batch in sizes:
                detect = artifact.module.detect_named
                compare_batches(agreement, expected, detect, canvases, thresholds, batch)
    if failures := agreement.verdict():
        raise ArtifactError(f"the {kind} does not find what the detector finds: {failures}")
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
    slots = slots_of(expected)
    for first, found in in_batches(lambda images: detect_named(images, *thresholds), canvases, batch):
        for index in range(len(found["counts"])):
            wanted = expected[(first + index) % len(expected)]
            agreement.compare(
                _of_image(wanted, 0),
                _of_image(found, index),
                thresholds[0],
                slots,
                f"canvas {first + index} in a batch of {batch}, thresholds {thresholds[0]:g} and "
                f"{thresholds[1]:g}",
            )


def in_batches(
    detect: Callable[[Tensor], Mapping[str, Tensor]], canvases: Tensor, batch: int
) -> Iterator[tuple[int, Mapping[str, Tensor]]]:
    """The index of the first canvas of each batch, and what is found in it.

    A batch that is larger than all of them has them several times.
    """
    if batch > len(canvases):
        times = -(-batch // len(canvases))
        canvases = canvases.repeat(times, 1, 1, 1)[:batch]
    for first in range(0, len(canvases), batch):
        yield first, detect(canvases[first : first + batch])


def _of_image(found: Mapping[str, Tensor], index: int) -> Answer:
    count = int(found["counts"][index])
    return {name: value[index, :count].cpu() for name, value in found.items() if name != "counts"}
