"""What the options of each command say, after they are read and before anything is looked up."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class TrainArguments:
    """Of `lensbox train`; `command` is its command line, for the record of the run."""

    data: tuple[str, ...]
    strict: bool
    val: tuple[str, ...]
    output: Path
    config: tuple[Path, ...]
    sets: tuple[str, ...]
    time_limit: float | None
    device: str | None
    resume: bool
    weights: Path | None
    teachers: tuple[Path, ...]
    leave_out: str | None
    profile: bool
    tensorboard: bool
    contact_sheet: Path | None
    print_config: bool
    command: str


@dataclass(frozen=True)
class DetectorArguments:
    """Which detector, and where it runs: what `lensbox evaluate` and `lensbox stress` share."""

    weights: Path | None
    checkpoint: Path | None
    artifact: Path | None
    trusted: bool
    public_key: Path | None
    device: str | None


@dataclass(frozen=True)
class EvaluateArguments:
    """Of `lensbox evaluate`."""

    detector: DetectorArguments
    data: tuple[str, ...]
    strict: bool
    coco: bool
    report: Path | None
    json: Path | None


@dataclass(frozen=True)
class StressArguments:
    """Of `lensbox stress`."""

    detector: DetectorArguments
    output: Path
    threshold: float | None
