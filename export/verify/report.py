"""The Markdown report of the comparison between exported files and their detector."""

import platform
from collections.abc import Mapping
from pathlib import Path

import torch

from lensbox.artifact.metadata import ArtifactMetadata, Parity
from lensbox.export.verify.reference import Reference

_HEAD = (
    "file",
    "runtime",
    "device",
    "precision",
    "batch",
    "boxes within, px",
    "scores within",
    "others",
    "loss within",
    "ms",
    "of PyTorch's",
)


def parity_report(files: Mapping[Path, ArtifactMetadata], reference: Reference) -> str:
    """Return a table with the rows of all files, with the method and the machine."""
    rows = [_HEAD, ("---",) * len(_HEAD)]
    rows += [
        _cells(path, metadata, row, reference) for path, metadata in files.items() for row in metadata.parity
    ]
    table = "\n".join(f"| {' | '.join(cells)} |" for cells in rows)
    score, iou = reference.thresholds
    return f"""# The files of one export against their detector

Each file's `detect` and loss against those of the detector in PyTorch on the CPU, in float32 and one canvas
at a time: {len(reference.canvases)} canvases with {_count(files)} detections, at a score threshold of
{score:g} and an IoU threshold of {iou:g}. *Others* are detections without a partner in the other set:
rounding decides which of two boxes with nearly equal scores stays. *ms* is the time of a batch, in one CPU
thread where the device is the CPU; the last column is that time divided by PyTorch's on the CPU.

{table}

{_machine()}
"""


def _cells(path: Path, metadata: ArtifactMetadata, row: Parity, reference: Reference) -> tuple[str, ...]:
    return (
        path.name,
        row.runtime,
        row.device,
        metadata.precision.dtype if metadata.precision else "float32",
        f"{row.batch}",
        f"{row.boxes:.2g}",
        f"{row.scores:.2g}",
        f"{row.exchanged}",
        "" if row.loss is None else f"{row.loss:.2g}",
        f"{row.milliseconds:.3g}",
        f"{row.milliseconds / reference.milliseconds(row.batch):.2f}",
    )


def _count(files: Mapping[Path, ArtifactMetadata]) -> int:
    return max((row.detections for metadata in files.values() for row in metadata.parity), default=0)


def _machine() -> str:
    gpu = f", {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ""
    system = f"{platform.system()} on {platform.machine()}, Python {platform.python_version()}"
    return f"{system}, torch {torch.__version__}{gpu}"
