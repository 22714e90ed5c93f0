"""The settings of a run on the article's toy, see `docs/article.md`."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Strict
from pydantic.dataclasses import dataclass

from lensbox.train.config.bounds import Count, CountOrNone, Positive, Seed
from lensbox.train.config.settings import STRICT, checked
from lensbox.train.errors import ConfigError


@dataclass(frozen=True, config=STRICT)
class ArticleConfig:
    """Everything that decides a run besides its device.

    The article's own net has the channels 32, 64, 128 and 256 and 16384 hidden values; its batches hold 1024.
    """

    seed: Seed = 0
    channels: Annotated[tuple[Count, Count, Count, Count], Strict(False)] = (2, 4, 8, 8)
    hidden: Count = 64
    samples: Count = 1_000_000
    batch_size: Count = 16
    steps: Count = 120
    learning_rate: Positive = 2e-3
    workers: CountOrNone = 0
    compile: bool = False
    bf16: bool = False
    log_seconds: Positive = 5.0
    checkpoint_seconds: Positive = 120.0

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=2)


def article_config(values: Mapping[str, Any]) -> ArticleConfig:
    """The defaults with `values` laid over them. Raises ConfigError as `config_from_mapping` does."""
    known = [member.name for member in dataclasses.fields(ArticleConfig)]
    for name in values:
        if name not in known:
            raise ConfigError(
                f"unknown configuration key {name!r} for the article's net; known keys: {', '.join(known)}"
            )
    return checked(ArticleConfig(), values)
