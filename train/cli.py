"""The commands `lensbox train` and `lensbox evaluate`.

Bodies import what they need when they run: torch takes seconds to load, and `--help` must not wait for it.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from lensbox.common.command import FILE, OPS, Command, given_arguments, require_at_most_one
from lensbox.common.files import atomic_write, require_writable_file, require_writable_folder


@dataclass(frozen=True)
class TrainArguments:
    """The options of `lensbox train`; `command` is its command line, for the record of the run."""

    data: tuple[str, ...]
    labels: str | None
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
class DetectorArguments:
    """The options that name a detector and its device."""

    weights: Path | None
    checkpoint: Path | None
    artifact: Path | None
    public_key: Path | None
    ops: tuple[Path, ...]
    device: str


_strict = click.option("--strict", is_flag=True, help="Stop at the first problem in the data.")
_labels = click.option(
    "--labels", type=click.Choice(["wider", "coco", "yolo"]), help="Layout of the labels. Default: detect."
)
_device = click.option("--device", default="auto", help="cpu, cuda, cuda:N or auto, which prefers a GPU.")


_DETECTORS = ("weights", "checkpoint", "artifact")


def _with_detector(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of `DetectorArguments`."""
    for option in (
        _device,
        OPS,
        click.option("--public-key", type=FILE, help="PEM file. --artifact must be signed with its key."),
        click.option("--artifact", type=FILE, help="Exported artifact; `evaluate` takes any detector."),
        click.option("--checkpoint", type=FILE, help="checkpoint.pt of a run; uses its weight average."),
        click.option("--weights", type=FILE, help="safetensors file. Default: the shipped weights."),
    ):
        function = option(function)
    return function


def _detector(options: dict[str, Any]) -> DetectorArguments:
    require_at_most_one(options, *_DETECTORS)
    return DetectorArguments(**options)


@click.command(cls=Command)
@click.option(
    "--data",
    multiple=True,
    required=True,
    metavar="PATH...",
    help="Photographs: folders, tar shards, COCO or YOLO.",
)
@_labels
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
@_strict
@_with_detector
@click.option("--detections", type=FILE, metavar="FILE", help="Score COCO results (JSON), no detector.")
@click.option("--coco", is_flag=True, help="COCO's average precision too (pycocotools).")
@click.option("--report", type=FILE, metavar="FOLDER", help="Draw curves, misses, false alarms.")
@click.option("--json", "json_file", type=FILE, metavar="FILE", help="Also write the figures to FILE.")
def evaluate(
    data: tuple[str, ...],
    labels: str | None,
    strict: bool,
    detections: Path | None,
    coco: bool,
    report: Path | None,
    json_file: Path | None,
    **options: Any,
) -> None:
    """Measure average precision at IoU 0.5 by box height, and by class where the detector has some.

    If --data is one COCO file, --coco adds the summary of pycocotools for that file. --detections prints the
    summary for the detections in FILE.
    """
    import json

    from lensbox.train.data.coco import annotation_file

    coco_file = annotation_file(Path(data[0])) if len(data) == 1 and labels in (None, "coco") else None
    if detections is not None:
        require_at_most_one({**options, "detections": detections}, "detections", *_DETECTORS)
        if coco_file is None:
            raise click.UsageError("--detections needs one COCO file: --data instances.json")
        from lensbox.train.evaluation.coco_precision import read_results, summary

        print("\n".join(summary(coco_file, read_results(detections))))
        return
    arguments = _detector(options)
    from lensbox.runtime.device import choose_device
    from lensbox.train.choices import chosen_detector, load_labelled
    from lensbox.train.evaluation.evaluate import detect_all, detect_photographs, score
    from lensbox.train.evaluation.pictures import write_pictures

    device = choose_device(arguments.device)
    if report is not None:
        require_writable_folder("--report", report)
    if json_file is not None:
        require_writable_file("--json", json_file)
    chosen = chosen_detector(arguments, device)
    photographs = load_labelled(data, labels, strict, chosen.canvas, chosen.classes)
    if chosen.artifact is None:
        found = detect_all(chosen.detect, photographs.canvases, device)
    else:
        found = detect_photographs(chosen.artifact, photographs)
    figures, matched = score(found, photographs, coco)
    print("\n".join(figures.lines()))
    if coco and coco_file is not None:
        from lensbox.train.evaluation.coco_precision import results_of, summary

        print("\n".join(summary(coco_file, results_of(found, photographs, coco_file))))
    if report is not None:
        write_pictures(photographs, matched, report)
        print(f"wrote {report}")
    if json_file is not None:
        atomic_write(json_file, (json.dumps(figures.to_json(), indent=2) + "\n").encode())
