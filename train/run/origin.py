"""What the weights of a run come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lensbox.train.data.folds import LEFT_OUT, Fold
from lensbox.train.errors import ConfigError
from lensbox.train.loss.teachers import Teachers
from lensbox.train.run.initial_weights import InitialWeights


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
