"""An assertion that an artifact is thread-safe."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

from lensbox.runtime import Artifact


def assert_same_in_threads(
    artifact: Artifact, batches: Sequence[Tensor], score_threshold: float, threads: int
) -> None:
    wanted = [artifact.detect(batch, score_threshold) for batch in batches]
    with ThreadPoolExecutor(threads) as pool:
        found = list(pool.map(lambda batch: artifact.detect(batch, score_threshold), batches))
    for one, other in zip(found, wanted, strict=True):
        assert all(map(torch.equal, one, other))
