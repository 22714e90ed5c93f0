"""No call of TorchScript compiles anything, whatever its batch size."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from lensbox.runtime import Artifact, load_artifact


def _executed_graph() -> Any:
    """Return the graph of this thread's last call of TorchScript: a new object after a compilation."""
    return torch._C._last_executed_optimized_graph()


_CALLS: dict[str, Callable[[Artifact, int], object]] = {
    "detect": lambda artifact, size: artifact.detect(torch.zeros(size, 1, 256, 256, dtype=torch.uint8)),
    "images": lambda artifact, size: artifact.detect_images(
        [torch.zeros(3, 20 + size, 30, dtype=torch.uint8)] * size
    ),
    "loss": lambda artifact, size: artifact.loss(torch.zeros(size, 4), torch.zeros(size, 4)),
    "self-test": lambda artifact, size: artifact.self_test(),
}


@pytest.mark.parametrize("call", _CALLS.values(), ids=_CALLS)
def test_a_new_batch_size_is_not_compiled(
    call: Callable[[Artifact, int], object], artifact_path: Path, device: torch.device
) -> None:
    artifact = load_artifact(artifact_path, device)
    call(artifact, 1)
    first = _executed_graph()
    for size in (1, 1, 2, 2, 3, 5, 4, 1):
        call(artifact, size)
        assert _executed_graph() is first


def test_each_call_restores_the_switch(artifact: Artifact) -> None:
    assert torch._C._get_graph_executor_optimize()
    for threshold in (0.5, 7):  # the second one raises
        with contextlib.suppress(ValueError):
            artifact.detect(torch.zeros(1, 1, 256, 256, dtype=torch.uint8), threshold)
        assert torch._C._get_graph_executor_optimize()
