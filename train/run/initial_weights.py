"""Existing weights to start a run from."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import NamedTuple

from lensbox.model import DetectorConfig, FaceDetector, weights_sha256
from lensbox.train.config.settings import TrainConfig
from lensbox.train.errors import ConfigError
from lensbox.train.weights import load_weights


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
