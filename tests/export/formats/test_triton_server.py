"""A real Triton server answers for the repository's Python model.

Runs where LENSBOX_TRITONSERVER names a program that passes its options on to `tritonserver`, with a Python
backend that has numpy and onnxruntime. One for a CPU is in the wheel of nvidia-pytriton (numpy below 2): its
folder `tritonserver` has `bin/tritonserver` and `backends`, in whose `python` the program
`python_backend_stubs/VERSION/triton_python_backend_stub` has to lie.
"""

import os
import shlex
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
import tritonclient.grpc as client
from free_port import free_port
from torch import Tensor

from lensbox.common.files import atomic_write
from lensbox.export.formats.triton import make_repository
from lensbox.export.plan import ExportOptions, Plan
from lensbox.export.verify.reference import comparison_canvases
from lensbox.model import FaceDetector

COMMAND = shlex.split(os.environ.get("LENSBOX_TRITONSERVER", ""))
PATIENCE = 120.0
SCORE, OVERLAP = 0.25, 0.4
MODEL = "face_detector_python"

pytestmark = pytest.mark.skipif(not COMMAND, reason="LENSBOX_TRITONSERVER names no Triton server")


@pytest.fixture(scope="module")
def server(detector: FaceDetector, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the gRPC address of a server with the repository."""
    folder = tmp_path_factory.mktemp("triton")
    for path, content in make_repository(Plan(detector, ExportOptions(SCORE, OVERLAP)), folder).items():
        atomic_write(path, content)
    port = free_port()
    options = [f"--model-repository={folder}", f"--grpc-port={port}", "--allow-http=false"]
    options += ["--allow-metrics=false", "--model-control-mode=explicit", f"--load-model={MODEL}"]
    log = (tmp_path_factory.mktemp("log") / "triton.log").open("w+")
    with log, subprocess.Popen([*COMMAND, *options], stdout=log, stderr=log) as process:
        try:
            asking = client.InferenceServerClient(f"127.0.0.1:{port}")
            until = time.monotonic() + PATIENCE
            while not _is_ready(asking):
                log.seek(0)
                assert process.poll() is None, log.read()
                assert time.monotonic() < until, log.read()
                time.sleep(0.2)
            yield f"127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(PATIENCE)


def _is_ready(asking: Any) -> bool:
    try:
        return bool(asking.is_model_ready(MODEL))
    except client.InferenceServerException:
        return False


def ask(url: str, canvases: Tensor, **thresholds: float) -> Any:
    images = client.InferInput("images", list(canvases.shape), "UINT8")
    images.set_data_from_numpy(canvases.numpy())
    inputs = [images]
    for name, value in thresholds.items():
        inputs.append(client.InferInput(name, [len(canvases), 1], "FP32"))
        inputs[-1].set_data_from_numpy(np.full([len(canvases), 1], value, np.float32))
    with client.InferenceServerClient(url) as asking:
        return asking.infer(MODEL, inputs)


def assert_answer(answer: Any, expected: tuple[Tensor, Tensor, Tensor]) -> None:
    boxes, scores, counts = expected
    assert answer.as_numpy("counts").tolist() == counts[:, None].tolist()
    for index, count in enumerate(counts.tolist()):
        for name, wanted in (("boxes", boxes), ("scores", scores)):
            actual = torch.from_numpy(answer.as_numpy(name)[index, :count].copy())
            torch.testing.assert_close(actual, wanted[index, :count], rtol=1e-3, atol=1e-3)


def test_answers_mixed_concurrent_requests(server: str, detector: FaceDetector) -> None:
    canvases = comparison_canvases(detector, (), 32)[0]
    own = {"score_threshold": 0.1, "iou_threshold": 0.2}

    def check(number: int) -> int:
        part = canvases[number % 12 : number % 12 + 1 + number % 3]
        thresholds = own if number % 2 else {}
        with torch.no_grad():
            expected = detector.detect(part, *(own.values() if number % 2 else (SCORE, OVERLAP)))
        assert_answer(ask(server, part, **thresholds), expected)
        return int(expected[2].sum())

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(check, range(100))) > 100


def test_bad_thresholds_return_invalid_argument(server: str, detector: FaceDetector) -> None:
    canvases = comparison_canvases(detector, (), 32)[0][:2]
    with pytest.raises(client.InferenceServerException, match="score_threshold must be one number") as caught:
        ask(server, canvases, score_threshold=1.5)
    assert caught.value.status() == "StatusCode.INVALID_ARGUMENT"
