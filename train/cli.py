"""The commands `lensbox train` and `lensbox evaluate`.

Bodies import what they need when they run: torch takes seconds to load, and `--help` must not wait for it.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lensbox.cli.command import FILE, OPS, Command, given_arguments, require_at_most_one

if TYPE_CHECKING:
    from lensbox.common.fields import Orientation


@dataclass(frozen=True)
class TrainArguments:
    """The options of `lensbox train`; `command` is its command line, for the record of the run."""

    data: tuple[str, ...]
    labels: str | None
    orientation: Orientation
    strict: bool
    val: tuple[str, ...]
    output: Path
    config: tuple[Path, ...]
    sets: tuple[str, ...]
    time_limit: float | None
    device: str
    resume: bool
    weights: Path | None
    teachers: tuple[Path, ...]
    leave_out: str | None
    contact_sheet: Path | None
    print_config: bool
    command: str


@dataclass(frozen=True)
class EvaluateArguments:
    """The options of `lensbox evaluate`."""

    data: tuple[str, ...]
    labels: str | None
    orientation: Orientation | None
    strict: bool
    weights: Path | None
    checkpoint: Path | None
    artifact: Path | None
    public_key: Path | None
    ops: tuple[Path, ...]
    device: str
    detections: Path | None
    coco: bool
    json_file: Path | None


_strict = click.option("--strict", is_flag=True, help="Stop at the first problem in the data.")
_labels = click.option(
    "--labels", type=click.Choice(["wider", "coco", "yolo"]), help="Layout of the labels. Default: detect."
)
_orientations = click.Choice(["exif", "stored"])
_device = click.option("--device", default="auto", help="cpu, cuda, cuda:N or auto, which prefers a GPU.")


@click.command(cls=Command)
@click.option(
    "--data",
    multiple=True,
    required=True,
    metavar="PATH...",
    help="Photographs: folders, tar shards, COCO or YOLO.",
)
@_labels
@click.option(
    "--orientation",
    type=_orientations,
    default="exif",
    help="exif: labels are of upright photographs; stored: of their pixels as stored.",
)
@_strict
@click.option("--val", multiple=True, metavar="PATH...", help="Photographs to evaluate on, as --data.")
@click.option("--output", type=FILE, default=Path("runs/train"), metavar="FOLDER", help="Folder of the run.")
@click.option(
    "--config",
    type=FILE,
    multiple=True,
    metavar="FILE...",
    help="YAML (or JSON) files with configuration keys; later ones override.",
)
@click.option("--set", "sets", multiple=True, metavar="KEY=VALUE...", help="Overrides the files.")
@click.option("--time-limit", type=float, metavar="SECONDS", help="Fit the schedule to this time.")
@_device
@click.option("--resume", is_flag=True, help="Go on from the checkpoint in --output.")
@click.option("--weights", type=FILE, help="Start from this safetensors file, to fine-tune it.")
@click.option(
    "--teacher",
    "teachers",
    type=FILE,
    multiple=True,
    metavar="PATH...",
    help="Weights of larger detectors, whose predictions are learned too.",
)
@click.option(
    "--leave-out", metavar="K/N", help="Train without fold K of N of the photographs, to be their teacher."
)
@click.option("--contact-sheet", type=FILE, metavar="PNG", help="Draw views with boxes and stop.")
@click.option("--print-config", is_flag=True, help="Print the configuration and stop.")
def train(**options: Any) -> None:
    """Train a face detector on photographs labelled as in WIDER FACE, COCO or YOLO."""
    require_at_most_one(options, "resume", "weights")
    from lensbox.train.train import run_train

    run_train(TrainArguments(**options, command=shlex.join(["lensbox", "train", *given_arguments()])))


@click.command(cls=Command)
@click.option(
    "--data", multiple=True, required=True, metavar="PATH...", help="Folders, tar shards, COCO or YOLO."
)
@_labels
@click.option(
    "--orientation",
    type=_orientations,
    help="As for lensbox train. Default: the orientation of --artifact, else exif.",
)
@_strict
@click.option("--weights", type=FILE, help="safetensors file. Default: the shipped weights.")
@click.option("--checkpoint", type=FILE, help="checkpoint.pt of a run; uses its weight average.")
@click.option("--artifact", type=FILE, help="Exported artifact of any detector.")
@click.option("--public-key", type=FILE, help="PEM file. --artifact must be signed with its key.")
@OPS
@_device
@click.option("--detections", type=FILE, metavar="FILE", help="Score COCO results (JSON), no detector.")
@click.option("--coco", is_flag=True, help="COCO's average precision too (pycocotools).")
@click.option("--json", "json_file", type=FILE, metavar="FILE", help="Also write the figures to FILE.")
def evaluate(**options: Any) -> None:
    """Measure average precision at IoU 0.5 by box height, and by class where the detector has some.

    If --data is one COCO file, --coco adds the summary of pycocotools for that file. --detections prints the
    summary for the detections in FILE.
    """
    require_at_most_one(options, "detections", "weights", "checkpoint", "artifact")
    from lensbox.train.evaluation.command import run_evaluate

    run_evaluate(EvaluateArguments(**options))
