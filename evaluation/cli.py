"""The command `lensbox evaluate`, and its options. `--help` must not wait for torch."""

import json
import os
from pathlib import Path
from typing import Any

import click
from pydantic import Field
from pydantic.dataclasses import dataclass

from lensbox.cli.command import Command, options_of, read_options, require_at_most_one
from lensbox.common.fields import Fraction, Orientation, described
from lensbox.common.files import atomic_write, require_writable_file, require_writable_folder


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


@click.command(cls=Command)
@options_of(EvaluateInputs)
def evaluate(**options: Any) -> None:
    """Score what `lensbox detect` finds on labelled photographs.

    Print average precision at IoU 0.5 by box height, and by class where the detector has some, and COCO's.
    """
    require_at_most_one(options, "weights", "artifact")
    require_at_most_one(options, "detections", "weights")
    inputs = read_options(EvaluateInputs, options)
    if inputs.artifact is None and (inputs.public_key is not None or inputs.ops):
        raise click.UsageError(f"{'--ops' if inputs.ops else '--public-key'} is for --artifact, got none")
    if inputs.detections is not None and inputs.score_threshold is not None:
        raise click.UsageError("--score-threshold is for a detector, not for --detections")
    # OpenMP reads this when torch is imported: waiting threads that spin take the cores from other programs.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    if inputs.json is not None:
        require_writable_file("--json", inputs.json)
    if inputs.plots is not None:
        require_writable_folder("--plots", inputs.plots)
        from lensbox.evaluation.plots import write_plots  # names matplotlib if it is missing
    from lensbox.evaluation.data.account import Account
    from lensbox.evaluation.data.labels import read_labels
    from lensbox.evaluation.evaluate import evaluate as score
    from lensbox.evaluation.evaluate import evaluate_file
    from lensbox.model import load_detector
    from lensbox.runtime import load_artifact
    from lensbox.runtime.device import choose_device

    account, artifact = Account(), None
    if inputs.artifact is not None:
        device = choose_device(inputs.device)
        artifact = load_artifact(inputs.artifact, device, public_key=inputs.public_key, ops=inputs.ops)
    elif inputs.detections is None:
        detector = load_detector(inputs.weights).to(choose_device(inputs.device))
    orientation = inputs.orientation or (artifact.metadata.reading.orientation if artifact else "exif")
    images, _ = read_labels(inputs.data, inputs.strict, "val", orientation, account)
    if inputs.detections is not None:
        canvas = artifact.metadata.canvas if artifact else None
        figures = evaluate_file(inputs.detections, images, canvas, account)
    else:
        figures = score(artifact or detector, images, inputs.score_threshold, account)
    print("\n".join(figures.lines() + (figures.coco_lines() if inputs.coco else [])))
    if inputs.json is not None:
        atomic_write(inputs.json, (json.dumps(figures.to_json(), indent=2) + "\n").encode())
    if inputs.plots is not None:
        write_plots(figures, inputs.plots)
