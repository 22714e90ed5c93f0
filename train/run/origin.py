"""The origin of a run's weights: initial weights, a fold left out, teachers.

Teachers are larger detectors, whose predictions a small one learns besides the labels. Detectors of all sizes
have the same anchors, so nothing needs matching.

A detector that was trained long on few photographs knows them by heart and predicts their labels. Its
predictions for photographs that it never saw are better targets. So a teacher may leave out a fold, a share
of the photographs, and is then asked about that fold only (cross-fitting, Dao et al. 2021, arXiv:2104.09732).
The name of a photograph alone decides its fold; other data and another order change nothing.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lensbox.evaluation.data.labels import LabelledImage
from lensbox.model import DetectorConfig, FaceDetector, load_detector, read_metadata, weights_sha256
from lensbox.train.photographs import fold_index
from lensbox.train.settings import ConfigError, TrainConfig, TrainInputs

# Sets of detectors: one that was trained on all photographs, or K that left a fold out each, in their order.
Teachers = Sequence[tuple[FaceDetector, ...]]
LEFT_OUT = "left_out"  # key of a detector's metadata: the fold that it was not trained on
Fold = tuple[int, int]  # K and N of fold K/N: the K-th of N folds of about equal size, K from 1


def parse_fold(text: str, source: str = "--leave-out") -> Fold:
    """Parse `K/N`, such as `1/4`. Raise ConfigError that names `source` unless 1 <= K <= N and N >= 2."""
    number, slash, count = text.partition("/")
    if slash and number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count) >= 2:
        return int(number), int(count)
    raise ConfigError(
        f"{source} must be a share such as 1/4, from 1/N to N/N with N at least 2, got {text!r}"
    )


def without_fold(images: Sequence[LabelledImage], fold: Fold) -> list[LabelledImage]:
    """Return the photographs of all other folds."""
    number, count = fold
    return [image for image in images if fold_index(image.name, count) != number - 1]


def fold_text(fold: Fold) -> str:
    """Return `K/N`."""
    return "{}/{}".format(*fold)


def fold_count(teachers: Teachers) -> int:
    """Return the number of folds that teachers left out, 1 if none did."""
    return max(map(len, teachers), default=1)


def load_teachers(paths: Sequence[Path]) -> tuple[Teachers, dict[str, str]]:
    """Load weights that `save_detector` wrote, of any size of detector.

    Return the teachers, and their names and hashes for the metadata of the student's weights. Raise
    ConfigError if the teachers that left a fold out are no complete sets, and InputError as `load_detector`.
    """
    whole: list[FaceDetector] = []
    by_fold: defaultdict[Fold, list[FaceDetector]] = defaultdict(list)
    digests = []
    for path in paths:
        detector = load_detector(path).requires_grad_(False)
        left_out = read_metadata(path).get(LEFT_OUT)
        source = f"{path}: {LEFT_OUT!r} in its metadata"
        (by_fold[parse_fold(left_out, source)] if left_out else whole).append(detector)
        digests.append(weights_sha256(detector))
    count = next(iter(by_fold))[1] if by_fold else 0
    groups = [by_fold.get((number, count), []) for number in range(1, count + 1)]
    if len(by_fold) != count or len(set(map(len, groups))) > 1:
        given = ", ".join(
            f"{len(group)} without {fold_text(fold)}" for fold, group in sorted(by_fold.items())
        )
        raise ConfigError(
            f"--teacher must name as many teachers without each fold from 1/{count} to {count}/{count}, "
            f"got {given}"
        )
    names = ", ".join(path.name for path in paths)
    facts = {"teachers": names, "teachers_sha256": ", ".join(digests)} if paths else {}
    return [*((one,) for one in whole), *zip(*groups, strict=True)], facts


@dataclass(frozen=True)
class Origin:
    """The initial weights and the teachers of a run.

    detector: has the initial weights; None starts from random ones, or from a checkpoint. left_out: the fold
    that the photographs lack. teachers: detectors to learn from besides the labels. facts: all of them as
    text, for the metadata of the weights and for checkpoints.
    """

    detector: FaceDetector | None = None
    left_out: Fold | None = None
    teachers: Teachers = ()
    facts: Mapping[str, str] = field(default_factory=dict)


def load_origin(inputs: TrainInputs, config: TrainConfig) -> Origin:
    """Load the initial weights and the teachers of a run.

    Raise InputError as `load_detector`, and ConfigError if the fold is no fold, the initial weights were
    trained on it or have another layout than `config.model`, or the teachers are no complete sets.
    """
    left_out = parse_fold(inputs.leave_out) if inputs.leave_out is not None else None
    teachers, facts = load_teachers(inputs.teacher)
    facts |= {} if left_out is None else {LEFT_OUT: fold_text(left_out)}
    if inputs.weights is None:
        return Origin(None, left_out, teachers, facts)
    detector = load_detector(inputs.weights)
    if detector.config != DetectorConfig.named(config.model):
        raise ConfigError(
            f"model must have the layout of the initial weights, {detector.config}, got {config.model!r}"
        )
    known = read_metadata(inputs.weights).get(LEFT_OUT)
    if left_out is not None and known != fold_text(left_out):
        raise ConfigError(
            f"--weights must have been trained without fold {fold_text(left_out)}, as --leave-out says, "
            f"got weights that left out {known or 'nothing'}"
        )
    facts |= {"initial_weights": inputs.weights.name, "initial_weights_sha256": weights_sha256(detector)}
    return Origin(detector, left_out, teachers, facts)


def check_same_origin(now: Mapping[str, str], before: Mapping[str, str]) -> None:
    """Raise ConfigError unless a resumed run has the teachers and the photographs that it began with."""
    for option, fact, name in (
        ("--teacher", "teachers_sha256", "teachers"),
        ("--leave-out", LEFT_OUT, LEFT_OUT),
    ):
        if now.get(fact) != before.get(fact):
            wanted, given = (facts.get(name, "nothing") for facts in (before, now))
            given = f"different weights named {given}" if given == wanted else given
            raise ConfigError(f"{option} must be the same as when the run began ({wanted}), got {given}")
