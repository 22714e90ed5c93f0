"""A small detector and its artifacts, one of each format for the whole run of the tests.

`tests/conftest.py` imports these fixtures. They import what they need when a test asks for them.
"""

import fcntl
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from lensbox.model import FaceDetector


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
    """The same detector with the same thresholds."""
    from lensbox.export.pipeline import save_artifact

    path = tmp_path_factory.mktemp("onnx") / "detector.onnx"
    save_artifact(detector, path, score_threshold=0.25, iou_threshold=0.4, kind="onnx")
    return path


@pytest.fixture(scope="session")
def program_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of `RedAndBlue(side=8)`, as its graph with plain operators is small."""
    from user_detectors import RedAndBlue

    from lensbox.export.pipeline import save_artifact

    path = tmp_path_factory.mktemp("program") / "detector.program.pt2"
    save_artifact(RedAndBlue(side=8).eval(), path, plain_ops=True, kind="program")
    return path


@pytest.fixture(scope="session")
def package_path(detector: "FaceDetector", tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, compiled for the CPU, which takes long: where tests run in several processes, one does it."""
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
