"""The precision of float32 on a GPU: set for each call of an artifact, restored afterwards."""

import dataclasses
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from lensbox.artifact.metadata import Precision
from lensbox.runtime.artifact import Artifact
from lensbox.runtime.gpu_float32 import gpu_float32
from lensbox.runtime.loading import load_artifact

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
CONVOLUTIONS: Any = torch.backends.cudnn
PRODUCTS: Any = torch.backends.cuda.matmul


# These switches are not a GPU's, so they can be tested without one.
@pytest.fixture(params=[False, True], autouse=True)
def before(request: pytest.FixtureRequest) -> Iterator[bool]:
    """Set the switches of the process; restore torch's defaults afterwards."""
    CONVOLUTIONS.allow_tf32 = PRODUCTS.allow_tf32 = request.param
    yield request.param
    CONVOLUTIONS.allow_tf32, PRODUCTS.allow_tf32 = True, False


def rounds() -> tuple[bool, bool]:
    """Return whether convolutions and matrix products use TF32."""
    return CONVOLUTIONS.conv.fp32_precision == "tf32", PRODUCTS.fp32_precision == "tf32"


@pytest.mark.parametrize("tf32", [False, True])
def test_sets_and_restores_the_switches(tf32: bool, before: bool) -> None:
    with gpu_float32(CUDA, tf32):
        assert rounds() == (tf32, tf32)
        assert (CONVOLUTIONS.allow_tf32, PRODUCTS.allow_tf32) == (tf32, tf32)  # raises where both disagree
    assert rounds() == (before, before)
    assert (CONVOLUTIONS.allow_tf32, PRODUCTS.allow_tf32) == (before, before)


def test_an_error_restores_the_switches_and_a_cpu_ignores_them(before: bool) -> None:
    with pytest.raises(ZeroDivisionError), gpu_float32(CUDA, not before):
        raise ZeroDivisionError
    assert rounds() == (before, before)
    with gpu_float32(CPU, not before):
        assert rounds() == (before, before)


def test_restores_torch_s_newer_interface(before: bool) -> None:
    CONVOLUTIONS.conv.fp32_precision = "ieee" if before else "tf32"
    with gpu_float32(CUDA, tf32=True):
        assert rounds() == (True, True)
    assert rounds() == (not before, before)


def test_restores_medium_precision() -> None:
    torch.set_float32_matmul_precision("medium")
    with gpu_float32(CUDA, tf32=False):
        assert rounds() == (False, False)
    assert torch.get_float32_matmul_precision() == "medium"
    torch.set_float32_matmul_precision("highest")


def test_calls_of_one_precision_run_together_and_exclude_the_other(before: bool) -> None:
    barrier = threading.Barrier(2, timeout=60)

    def together(_: int) -> None:
        with gpu_float32(CUDA, tf32=False):
            barrier.wait()

    def wrong_switches(tf32: bool) -> int:
        wrong = 0
        for _ in range(100):
            with gpu_float32(CUDA, tf32):
                time.sleep(2e-5)
                wrong += rounds() != (tf32, tf32)
        return wrong

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(together, range(2)))
        assert sum(threads.map(wrong_switches, [False, True] * 3)) == 0
    assert rounds() == (before, before)


class Recording:
    """A module that computes on the CPU and records the switches at each call."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self.seen: dict[str, tuple[bool, bool]] = {}

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._module, name)

        def call(*arguments: Any) -> Any:
            self.seen[name] = rounds()
            return method(*arguments)

        return call


@pytest.mark.parametrize("dtype", [None, "tf32", "float16"])
def test_an_artifact_uses_the_precision_of_its_metadata(
    dtype: Any, before: bool, artifact_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = load_artifact(artifact_path)
    precision = None if dtype is None else Precision(dtype, "cuda", 1, 1, 0.0, 0.0, 0.0)
    module = Recording(loaded.module)
    artifact = Artifact(module, dataclasses.replace(loaded.metadata, precision=precision), CUDA)
    to: Any = torch.Tensor.to
    monkeypatch.setattr(
        torch.Tensor,
        "to",
        lambda tensor, *arguments, **options: to(
            tensor, *(CPU if argument is CUDA else argument for argument in arguments), **options
        ),
    )
    monkeypatch.setattr("lensbox.runtime.pipeline.to_device", lambda tensors, device: list(tensors))
    artifact.detect_image(torch.zeros(3, 20, 30, dtype=torch.uint8))
    artifact.loss(torch.ones(1, 4), torch.ones(1, 4))
    tf32 = dtype == "tf32"
    assert module.seen == dict.fromkeys(("preprocess", "detect", "restore", "loss"), (tf32, tf32))
    module.seen.clear()
    artifact.self_test()
    assert module.seen["detect"] == (tf32, tf32)
    assert rounds() == (before, before)
    with artifact.precision():
        artifact.loss(torch.ones(1, 4), torch.ones(1, 4))
        assert rounds() == (tf32, tf32)  # the call did not put them back
    assert rounds() == (before, before)
