"""The origin of a run's weights: initial weights, a fold left out, teachers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lensbox.model import DetectorConfig, FaceDetector, load_detector, weights_sha256
from lensbox.train.loss.teachers import LEFT_OUT, Fold, Teachers
from lensbox.train.settings import ConfigError, TrainConfig


def first_detector(path: Path | None, config: TrainConfig) -> FaceDetector:
    """Return the detector to train: with the weights of a file that `save_detector` wrote, or random ones.

    Raises:
        ConfigError: the layout of the weights differs from `config.model`; the message names the difference.
        InputError: as `load_detector`.
    """
    wanted = DetectorConfig.named(config.model)
    if path is None:
        return FaceDetector(wanted)
    detector = load_detector(path)
    given = dataclasses.asdict(detector.config)
    for name, value in dataclasses.asdict(wanted).items():
        if given[name] != value:
            raise ConfigError(
                f"model: must have the layout of the initial weights, got {config.model!r}, whose {name} is "
                f"{value}, not {given[name]} as in the weights"
            )
    return detector


@dataclass(frozen=True)
class Origin:
    """Initial weights, fold and teachers of a run.

    Attributes:
        initial: file of weights to start from; None starts from random ones, or from a checkpoint.
        left_out: the fold that the photographs lack.
        teachers: detectors to learn from besides the labels.
    """

    initial: Path | None = None
    left_out: Fold | None = None
    teachers: Teachers = field(default_factory=Teachers)

    def facts(self) -> dict[str, str]:
        """Return the origin as text, for the metadata of the weights and for checkpoints.

        Raise InputError as `load_detector` does.
        """
        initial = {}
        if self.initial is not None:
            digest = weights_sha256(load_detector(self.initial))
            initial = {"initial_weights": self.initial.name, "initial_weights_sha256": digest}
        left_out = {LEFT_OUT: str(self.left_out)} if self.left_out is not None else {}
        return {**initial, **self.teachers.origin, **left_out}


def check_same_origin(now: Mapping[str, str], before: Mapping[str, str]) -> None:
    """Raise ConfigError unless a resumed run has the teachers and the photographs that it began with."""
    for option, fact, shown in (
        ("--teacher", "teachers_sha256", "teachers"),
        ("--leave-out", LEFT_OUT, LEFT_OUT),
    ):
        if now.get(fact) != before.get(fact):
            wanted, given = (facts.get(shown, "nothing") for facts in (before, now))
            given = f"different weights named {given}" if given == wanted else given
            raise ConfigError(f"{option} must be the same as when the run began ({wanted}), got {given}")
