"""Settings and fixtures of all tests. LENSBOX_REQUIRE_... make a missing GPU, browser or runner a failure."""

import fcntl
import logging
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

# One thread, here and in every process that tests start: small tensors gain nothing from more, and on a busy
# machine OpenMP's waiting threads slow each other down a hundredfold. Must be set before torch is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A shell starts background jobs with SIGINT ignored, and so would the tests start every program.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

import pytest
import torch
from built_runner import runner_onnxruntime
from chromium import missing_for_browser

if TYPE_CHECKING:
    from lensbox.model import FaceDetector

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


@pytest.fixture
def new_gpu_float32(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let the test choose the precision of float32 on GPUs, as the first artifact of a process does."""
    monkeypatch.setattr("lensbox.runtime.gpu_float32._first", None)
    convolutions, products = torch.backends.cudnn, torch.backends.cuda.matmul
    before = convolutions.allow_tf32, products.allow_tf32
    yield
    convolutions.allow_tf32, products.allow_tf32 = before


# A small detector and its artifacts, one of each format for the whole run. Imports wait for the first use.


@pytest.fixture(scope="session")
def detector() -> "FaceDetector":
    from small_detectors import varied_detector

    return varied_detector(spread=0.2)


@pytest.fixture(scope="session")
def artifact_path(detector: "FaceDetector", tmp_path_factory: pytest.TempPathFactory) -> Path:
    from lensbox.export.pipeline import save_artifact

    path = tmp_path_factory.mktemp("artifact") / "detector.pt"
    save_artifact(detector, path, score_threshold=0.25, iou_threshold=0.4)
    return path


@pytest.fixture(scope="session")
def onnx_path(detector: "FaceDetector", tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Export the same detector with the same thresholds to ONNX."""
    from lensbox.export.pipeline import save_artifact

    path = tmp_path_factory.mktemp("onnx") / "detector.onnx"
    save_artifact(detector, path, score_threshold=0.25, iou_threshold=0.4, kind="onnx")
    return path


@pytest.fixture(scope="session")
def package_path(detector: "FaceDetector", tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile the same detector for the CPU. This takes long: only one of several test processes does it."""
    from lensbox.export.pipeline import save_artifact

    shared = tmp_path_factory.getbasetemp()
    if shared.name.startswith("popen-"):  # pytest-xdist's folder of one process
        shared = shared.parent
    path = shared / "compiled.pt2"
    with (shared / "compiled.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            save_artifact(detector, path, score_threshold=0.25, iou_threshold=0.4, kind="aoti")
    return path
