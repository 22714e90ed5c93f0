"""What all tests share: where they run, and that a missing GPU can be made a failure."""

import logging
import os
import signal

# One thread, here and in every process that tests start: small tensors gain nothing from more, and on a busy
# machine OpenMP's waiting threads slow each other down a hundredfold. Must be set before torch is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Whoever runs the tests in the background of a shell ignores SIGINT, and so would every program they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

import pytest
import torch
from artifact_fixtures import artifact_path, detector, onnx_path, package_path, program_path
from built_runner import runner_onnxruntime
from chromium import missing_for_browser

__all__ = ["artifact_path", "detector", "onnx_path", "package_path", "program_path"]

REQUIRE_GPU = os.environ.get("LENSBOX_REQUIRE_GPU") == "1"
REQUIRE_BROWSER = os.environ.get("LENSBOX_REQUIRE_BROWSER") == "1"
REQUIRE_ONNX_RUNNER = os.environ.get("LENSBOX_REQUIRE_ONNX_RUNNER") == "1"


# torch's compiler logs itself in hundreds of lines, which pytest would show with every failure.
logging.getLogger("torch.__trace").addFilter(lambda record: False)


def _gpu_is_usable() -> bool:
    from lensbox.ops import library_path, read_build_info

    return torch.cuda.is_available() and "cuda" in read_build_info(library_path()).backends


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Names long values by their length: pytest puts a test's name into the environment of child processes,
    which Linux refuses from 128 KiB on."""
    if isinstance(val, (str, bytes)) and len(val) > 100:
        return f"{argname}_of_{len(val)}"
    return None


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") is not None and not _gpu_is_usable():
        _leave_out(
            "needs an NVIDIA GPU and an op library built with CUDA", "LENSBOX_REQUIRE_GPU", REQUIRE_GPU
        )
    if item.get_closest_marker("browser") is not None and (missing := missing_for_browser()):
        _leave_out(f"needs {missing}", "LENSBOX_REQUIRE_BROWSER", REQUIRE_BROWSER)
    if item.get_closest_marker("onnx_runner") is not None and runner_onnxruntime() is None:
        _leave_out(
            "needs a lensbox_runner with onnxruntime", "LENSBOX_REQUIRE_ONNX_RUNNER", REQUIRE_ONNX_RUNNER
        )


def _leave_out(reason: str, variable: str, is_required: bool) -> None:
    if is_required:
        pytest.fail(f"{variable}=1, but this test {reason}")
    pytest.skip(reason)


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> torch.device:
    """The CPU, and the GPU where there is one."""
    return torch.device(request.param)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(20261120)
