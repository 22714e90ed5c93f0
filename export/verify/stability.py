"""Explain why no file can find what a detector finds: results that change by themselves."""

from torch import nn

from lensbox.common.errors import LensboxError
from lensbox.export.verify.comparer import Comparer, found_in_batches
from lensbox.export.verify.reference import Reference, one_thread
from lensbox.model.protocol_check import answer_of

_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
_BATCH = 2
_MOST_NAMED = 3


def instability(reference: Reference) -> str | None:
    """Return a sentence if the detector in PyTorch does not find the same in an image each time; else None.

    The detector is compared with itself, in batches of 1 and 2.
    """
    detector, thresholds = reference.detector, reference.thresholds
    comparer = Comparer(reference, "float32", "cpu", 0.0)

    def differs(batch: int) -> bool:
        with one_thread():
            found = found_in_batches(lambda *call: answer_of(detector, *call), reference, thresholds, batch)
        difference = comparer.difference(reference.found(thresholds), found, thresholds)
        if batch == 1:  # the same computation: nothing rounds in another way
            return bool(difference.unmatched)
        return bool(comparer.faults(difference, thresholds))

    try:
        if differs(1):
            return (
                "detect does not find the same in the same images each time: remove random numbers, such as "
                "dropout that is active in eval mode, and state that a call leaves behind"
            )
        if not differs(_BATCH):
            return None
    except (LensboxError, RuntimeError, ValueError):  # no batch of 2, which other messages explain
        return None
    said = "what detect finds in an image depends on the other images of the batch"
    norms = [
        name
        for name, part in detector.named_modules()  # type: ignore[attr-defined]
        if isinstance(part, _BATCH_NORMS) and (part.training or part.running_mean is None)
    ]
    if norms:
        names = ", ".join(norms[:_MOST_NAMED]) + (" and others" if len(norms) > _MOST_NAMED else "")
        said += (
            f", as batch norms have no running statistics: {names}. Train them with track_running_stats=True"
        )
    else:
        said += ". Compute each image by itself, without sums or maxima over the batch"
    return f"{said}, or export with --batch 1, with which every runtime gives the network single images"
