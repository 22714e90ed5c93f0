"""The origin of a run's weights: initial weights, a fold left out, teachers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lensbox.model import DetectorConfig, FaceDetector, load_detector, read_metadata, weights_sha256
from lensbox.train.loss.teachers import LEFT_OUT, Fold, Teachers
from lensbox.train.settings import ConfigError, TrainConfig


@dataclass(frozen=True)
class Origin:
    """Initial weights, fold and teachers of a run.

    Attributes:
        initial: file of weights to start from; None starts from random ones, or from a checkpoint.
        left_out: the fold that the photographs lack.
        teachers: detectors to learn from besides the labels.

    Raises:
        ConfigError: the initial weights were trained on the fold that is left out.
    """

    initial: Path | None = None
    left_out: Fold | None = None
    teachers: Teachers = field(default_factory=Teachers)

    def __post_init__(self) -> None:
        if self.initial is None or self.left_out is None or not self.initial.is_file():
            return
        known = read_metadata(self.initial).get(LEFT_OUT)
        if known != str(self.left_out):
            raise ConfigError(
                f"--weights must have been trained without fold {self.left_out}, as --leave-out says, "
                f"got weights that left out {known or 'nothing'}"
            )

    def first_detector(self, config: TrainConfig) -> FaceDetector:
        """Return the detector to train, with the initial weights or random ones.

        Raises:
            ConfigError: the layout of the weights differs from `config.model`.
            InputError: as `load_detector`.
        """
        wanted = DetectorConfig.named(config.model)
        if self.initial is None:
            return FaceDetector(wanted)
        detector = load_detector(self.initial)
        if detector.config != wanted:
            raise ConfigError(
                f"model must have the layout of the initial weights, {detector.config}, got {config.model!r}"
            )
        return detector

    def facts(self) -> dict[str, str]:
        """Return the origin as text, for the metadata of the weights and for checkpoints.

        Raise InputError as `load_detector` does.
        """
        facts = dict(self.teachers.origin)
        if self.initial is not None:
            digest = weights_sha256(load_detector(self.initial))
            facts |= {"initial_weights": self.initial.name, "initial_weights_sha256": digest}
        return facts | ({LEFT_OUT: str(self.left_out)} if self.left_out is not None else {})


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
