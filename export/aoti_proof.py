"""The proof that compiled code finds what the detector finds; without it, no package is written.

AOTInductor has been seen to put boxes somewhere else, without a word, for some layouts and batch sizes.
"""

import copy
from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from lensbox.artifact.metadata import Precision
from lensbox.common.errors import ArtifactError
from lensbox.export.detect_proof import in_batches, prove
from lensbox.export.detections_check import Agreement
from lensbox.export.precision import SCORE_LIMIT, PrecisionOptions, described_precision, measured_pictures
from lensbox.export.precision_change import PrecisionChange, found_in
from lensbox.export.proof_canvases import BATCHES, fit_pictures
from lensbox.model import Detector
from lensbox.model.protocol_check import answer_faults, named, slots_of
from lensbox.runtime.artifact import Artifact
from lensbox.runtime.formats.detect_only import Run

COMPILED_BATCHES = (*BATCHES, 256)


def prove_compiled(detector: Detector, artifact: Artifact, pictures: Sequence[Tensor]) -> Agreement:
    """Compares a package in float32 with its detector in eager mode on the same device. See `prove`."""
    there = copy.deepcopy(cast(nn.Module, detector)).to(artifact.device)
    return prove(cast(Detector, there), artifact, pictures, "compiled code", COMPILED_BATCHES)


@torch.no_grad()
def measure_compiled(
    detector: Detector, run: Run, options: PrecisionOptions, thresholds: tuple[float, float]
) -> Precision:
    """How far the detections of compiled code lie from those of the detector in float32 on the CPU.

    run: takes canvases on the CPU, in batches, and answers there. Of the batch sizes, the one with the
    largest change of a box counts. Raises ArtifactError as `measured_precision` does, for any of them.
    """
    specification = detector.specification
    pictures = measured_pictures(options, specification)
    canvases = fit_pictures(detector, pictures)
    if faults := answer_faults(run(canvases[:1], 0.0, 0.5), specification, 1):
        raise ArtifactError("\n  ".join([f"the detector cannot be compiled in {options.dtype}:", *faults]))
    answers = [named(detector.detect(canvas[None], *thresholds)) for canvas in canvases]
    slots = slots_of(answers)
    expected = [found_in(answer, slots) for answer in answers]
    precisions = []
    for batch in COMPILED_BATCHES:
        change = PrecisionChange()
        for first, found in in_batches(lambda images: run(images, *thresholds), canvases, batch):
            for index in range(len(found["counts"])):
                wanted = expected[(first + index) % len(expected)]
                change.compare(wanted, found_in(found, slots, index), thresholds[0], SCORE_LIMIT)
        change.pictures = len(pictures)
        try:
            precisions.append(described_precision(change, options, thresholds))
        except ArtifactError as error:
            raise ArtifactError(f"{error}, in batches of {batch}") from error
    return max(precisions, key=lambda precision: precision.max_box_change)
