"""The options of `lensbox evaluate`. Importing this must not import torch."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field
from pydantic.dataclasses import dataclass

from lensbox.common.fields import Fraction, Orientation, described


@dataclass(frozen=True, kw_only=True)
class DataInputs:
    """The options of `lensbox train` and `lensbox evaluate`."""

    data: tuple[Path, ...] = Field(description="Photographs: folders, tar shards, COCO or YOLO.")
    orientation: Orientation | None = described(
        None,
        "exif: labels are of upright photographs; stored: of their pixels as stored. Default: the "
        "orientation of an --artifact, else exif.",
    )
    strict: bool = described(False, "Stop at the first problem in the data.")
    device: str = described("auto", "cpu, cuda, cuda:N or auto, which prefers a GPU.")


@dataclass(frozen=True, kw_only=True)
class EvaluateInputs(DataInputs):
    """The options of `lensbox evaluate`."""

    weights: Path | None = described(None, "safetensors file. Default: the shipped weights.")
    artifact: Path | None = described(None, "Exported artifact of any detector.")
    public_key: Path | None = described(None, "PEM file. --artifact must be signed with its key.")
    ops: tuple[Path, ...] = described(
        (),
        "Libraries with operators of the detector, loaded before it. Their code runs with all your rights.",
    )
    detections: Path | None = described(
        None,
        "Score these lines of `lensbox detect` or `lensbox_runner detect`, no detector. With --artifact, "
        "heights are on its canvas.",
    )
    score_threshold: Fraction | None = described(
        None, "Score detections above this. Default: the detector's, or 0.02 if that is lower."
    )
    coco: bool = described(False, "All figures of COCO too, as pycocotools prints them.")
    plots: Path | None = described(
        None, "Also draw curves, confusions and the worst mistakes into this folder."
    )
    json: Path | None = described(None, "Also write the figures to this file.")
