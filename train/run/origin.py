"""The origin of a run's weights: initial weights, a fold left out, teachers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lensbox.model import DetectorConfig, FaceDetector, load_detector, read_metadata, weights_sha256
from lensbox.train.loss.teachers import LEFT_OUT, Fold, Teachers, load_teachers, parse_fold
from lensbox.train.settings import ConfigError, TrainConfig, TrainInputs


@dataclass(frozen=True)
class Origin:
    """The initial weights and the teachers of a run.

    Attributes:
        detector: has the initial weights; None starts from random ones, or from a checkpoint.
        left_out: the fold that the photographs lack.
        teachers: detectors to learn from besides the labels.
        facts: all of them as text, for the metadata of the weights and for checkpoints.
    """

    detector: FaceDetector | None = None
    left_out: Fold | None = None
    teachers: Teachers = field(default_factory=Teachers)
    facts: Mapping[str, str] = field(default_factory=dict)


def load_origin(inputs: TrainInputs, config: TrainConfig) -> Origin:
    """Load the initial weights and the teachers of a run.

    Raises:
        ConfigError: the fold is no fold, the initial weights were trained on it or have another layout than
            `config.model`, or the teachers are no complete sets.
        InputError: as `load_detector`.
    """
    left_out = parse_fold(inputs.leave_out) if inputs.leave_out is not None else None
    teachers = load_teachers(inputs.teacher)
    facts = teachers.origin | ({LEFT_OUT: str(left_out)} if left_out is not None else {})
    if inputs.weights is None:
        return Origin(None, left_out, teachers, facts)
    detector = load_detector(inputs.weights)
    if detector.config != DetectorConfig.named(config.model):
        raise ConfigError(
            f"model must have the layout of the initial weights, {detector.config}, got {config.model!r}"
        )
    known = read_metadata(inputs.weights).get(LEFT_OUT)
    if left_out is not None and known != str(left_out):
        raise ConfigError(
            f"--weights must have been trained without fold {left_out}, as --leave-out says, "
            f"got weights that left out {known or 'nothing'}"
        )
    facts |= {"initial_weights": inputs.weights.name, "initial_weights_sha256": weights_sha256(detector)}
    return Origin(detector, left_out, teachers, facts)


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
