"""What the weights of a run come from: initial weights, a fold left out, teachers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from lensbox.model import DetectorConfig, FaceDetector, weights_sha256
from lensbox.train.data.folds import LEFT_OUT, Fold
from lensbox.train.errors import ConfigError
from lensbox.train.loss.teachers import Teachers, load_weights
from lensbox.train.settings import TrainConfig


class InitialWeights(NamedTuple):
    """A detector to start from, and where it comes from: facts for the metadata of the weights it becomes."""

    detector: FaceDetector
    origin: dict[str, str]


def load_initial_weights(path: Path, config: TrainConfig) -> InitialWeights:
    """Loads weights that `save_detector` wrote, for a run with this configuration.

    Raises:
        ConfigError: their layout is not that of `config.model`.
        InputError: as `load_weights`.
    """
    detector = load_weights(path)
    check_layout(detector, config)
    origin = {"initial_weights": path.name, "initial_weights_sha256": weights_sha256(detector)}
    return InitialWeights(detector, origin)


def check_layout(detector: FaceDetector, config: TrainConfig) -> None:
    """Raises ConfigError, naming what differs, unless the detector has the layout of `config.model`."""
    wanted = dataclasses.asdict(DetectorConfig.named(config.model))
    given = dataclasses.asdict(detector.config)
    differing = [name for name in wanted if given[name] != wanted[name]]
    if differing:
        first = differing[0]
        raise ConfigError(
            f"model: must have the layout of the initial weights, got {config.model!r}, which differs in "
            f"{', '.join(differing)}; the first is {wanted[first]}, and {given[first]} in the weights"
        )


@dataclass(frozen=True)
class Origin:
    """What a run begins with besides its photographs.

    Attributes:
        initial: weights to start from; None starts from random ones, or from a checkpoint.
        left_out: the fold that the photographs lack.
        teachers: detectors to learn from besides the labels.
    """

    initial: InitialWeights | None = None
    left_out: Fold | None = None
    teachers: Teachers = field(default_factory=Teachers)

    def facts(self) -> dict[str, str]:
        """The same in words, for the metadata of the weights; a checkpoint keeps them."""
        initial = self.initial.origin if self.initial is not None else {}
        left_out = {LEFT_OUT: str(self.left_out)} if self.left_out is not None else {}
        return {**initial, **self.teachers.origin, **left_out}


def check_same_origin(now: Mapping[str, str], before: Mapping[str, str]) -> None:
    """Raises ConfigError unless a resumed run has the teachers and the photographs that it began with."""
    for option, fact, shown in (
        ("--teacher", "teachers_sha256", "teachers"),
        ("--leave-out", LEFT_OUT, LEFT_OUT),
    ):
        if now.get(fact) != before.get(fact):
            wanted, given = (facts.get(shown, "nothing") for facts in (before, now))
            given = "others of the same names" if given == wanted else given
            raise ConfigError(f"{option} must name what the run began with ({wanted}), got {given}")
