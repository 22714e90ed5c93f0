"""No call compiles anything: not the first ones, and not one with a batch size that never came before."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from lensbox.runtime.artifact import Artifact
from lensbox.runtime.loading import load_artifact


def _executed_graph() -> Any:
    """The graph that this thread's last call of TorchScript ran: the same object until it is made anew."""
    return torch._C._last_executed_optimized_graph()


def _call_detect(artifact: Artifact, size: int) -> None:
    artifact.detect(torch.zeros(size, 1, 256, 256, dtype=torch.uint8))


def _call_preprocess_to_restore(artifact: Artifact, size: int) -> None:
    artifact.detect_images([torch.zeros(3, 20 + size, 30, dtype=torch.uint8)] * size)


def _call_loss(artifact: Artifact, size: int) -> None:
    artifact.loss(torch.zeros(size, 4), torch.zeros(size, 4))


def _call_self_test(artifact: Artifact, size: int) -> None:
    artifact.self_test()


@pytest.mark.parametrize("call", [_call_detect, _call_preprocess_to_restore, _call_loss, _call_self_test])
def test_a_changing_batch_size_costs_no_compilation(
    call: Callable[[Artifact, int], None], artifact_path: Path, device: torch.device
) -> None:
    artifact = load_artifact(artifact_path, device)
    call(artifact, 1)
    first = _executed_graph()
    for size in (1, 1, 2, 2, 3, 5, 4, 1):
        call(artifact, size)
        assert _executed_graph() is first


def test_the_profiling_executor_would_compile(artifact_path: Path) -> None:
    """The uncompiled form differs; otherwise the test above would prove nothing."""
    module = load_artifact(artifact_path).module
    canvases = torch.zeros(1, 1, 256, 256, dtype=torch.uint8)
    graphs = []
    with torch.inference_mode():
        for _ in range(3):
            module.detect(canvases, 0.5, 0.5)
            graphs.append(_executed_graph())
    assert graphs[0] is not graphs[-1]


def test_the_switch_is_the_call_s_alone(artifact_path: Path) -> None:
    artifact = load_artifact(artifact_path)
    assert torch._C._get_graph_executor_optimize()
    _call_detect(artifact, 1)
    with pytest.raises(ValueError, match="score_threshold must be between"):
        artifact.detect(torch.zeros(1, 1, 256, 256, dtype=torch.uint8), 7)
    assert torch._C._get_graph_executor_optimize()
