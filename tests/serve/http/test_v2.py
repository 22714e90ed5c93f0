"""Protocol v2 through a service's life, under load, and with artifacts that have labels and more."""

import json
import math
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import pytest
import torch
import tritonclient.http as triton
from torch import Tensor
from tritonclient.utils import InferenceServerException
from user_detectors import Landmarks, RedAndBlue
from v2_requests import HEADER_LENGTH

from lensbox.artifact.metadata import Canvas
from lensbox.export.pipeline import save_artifact
from lensbox.runtime import load_artifact
from lensbox.serve.engine.jobs import CanvasDetections
from lensbox.serve.http.v2 import infer_answer
from lensbox.serve.requests.v2_request import InferRequest, TensorSpec, Wanted

WaitUntil = Callable[[Callable[[], bool]], None]

_CANVAS = (1, 2, 3)
_METADATA = SimpleNamespace(name="fake", canvas=Canvas(2, 3), classes=(), extras={}, output={})


def _header(count: int) -> bytes:
    """The JSON of a request with so many canvases."""
    images = {
        "name": "images",
        "shape": [count, *_CANVAS],
        "datatype": "UINT8",
        "parameters": {"binary_data_size": 6 * count},
    }
    return json.dumps({"inputs": [images], "parameters": {"binary_data_output": True}}).encode()


_HEADER = _header(1)
_BODY: dict[str, Any] = {"content": _HEADER + bytes([7] * 6), "headers": {HEADER_LENGTH: str(len(_HEADER))}}
_INFER = "/v2/models/fake/infer"


@pytest.mark.parametrize(
    ("module", "classes", "further"),
    [
        (RedAndBlue, ("red", "blue"), {"labels": ("INT64", ())}),
        (Landmarks, (), {"corners": ("FP32", (2, 2)), "embedding": ("FP32", (4,)), "cell": ("INT64", ())}),
    ],
)
def test_labels_and_further_outputs_by_name(
    start_service: Callable[..., Any],
    wait_until: WaitUntil,
    tmp_path: Path,
    module: Any,
    classes: tuple[str, ...],
    further: dict[str, tuple[str, tuple[int, ...]]],
) -> None:
    path = tmp_path / "detector.pt"
    save_artifact(module(), path)
    artifact = load_artifact(path)
    assert artifact.classes == classes
    running = start_service(lambda: artifact)
    wait_until(lambda: running.client.get("/v2/health/ready").status_code == 200)
    canvas = artifact.metadata.canvas
    pixels = torch.randint(0, 256, (3, canvas.channels, canvas.height, canvas.width), dtype=torch.uint8)
    expected = artifact.detect_named(pixels)
    slots = expected["boxes"].shape[1]
    with triton.InferenceServerClient(
        f"{running.client.base_url.host}:{running.client.base_url.port}"
    ) as server:
        metadata = server.get_model_metadata(artifact.metadata.name)
        images = triton.InferInput("images", list(pixels.shape), "UINT8").set_data_from_numpy(pixels.numpy())
        result = server.infer(artifact.metadata.name, [images])
    assert metadata["inputs"][0]["shape"] == [-1, *pixels.shape[1:]]
    declared = {output["name"]: output for output in metadata["outputs"]}
    assert list(declared) == ["boxes", "scores", "counts", *further]
    for name, (datatype, shape) in further.items():
        assert declared[name] == {"name": name, "datatype": datatype, "shape": [-1, slots, *shape]}
    for output in result.get_response()["outputs"]:
        name = output["name"]
        assert output["datatype"] == declared[name]["datatype"]
        assert output["shape"][1:] == declared[name]["shape"][1:]
        for image, count in enumerate(expected["counts"].tolist()):
            mine, theirs = result.as_numpy(name)[image], expected[name].numpy()[image]
            if name != "counts":
                mine, theirs = mine[:count], theirs[:count]
            np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-4)


@pytest.fixture
def fake(fake: Any) -> Any:
    """The fake artifact, here with a canvas."""
    fake.metadata = _METADATA
    return fake


def _waits(running: Any, fake: Any, jobs: int) -> bool:
    """Whether so many jobs wait behind one that runs."""
    return bool(fake.calls) and running.service.engine.waiting == jobs


@pytest.mark.parametrize("ends", ["late", "hangs up"])
def test_no_more_of_a_large_batch_is_computed_than_somebody_waits_for(
    start: Callable[..., Any], fake: Any, wait_until: WaitUntil, ends: str
) -> None:
    running = start(max_batch=2)
    header = _header(10)
    content, lengths = header + bytes(60), {HEADER_LENGTH: str(len(header))}
    fake.gate.clear()
    if ends == "late":
        hurry = {"X-Request-Timeout-Ms": "300"}
        response = running.client.post(_INFER, content=content, headers={**lengths, **hurry})
        assert response.status_code == 504
    else:
        url = running.client.base_url
        request = httpx.Request("POST", url, content=content, headers=lengths)
        fields = "".join(f"{name}: {value}\r\n" for name, value in request.headers.items())
        with socket.create_connection((url.host, url.port), timeout=60) as connection:
            connection.sendall(f"POST {_INFER} HTTP/1.1\r\n{fields}\r\n".encode() + content)
            wait_until(partial(_waits, running, fake, 0))
        wait_until(lambda: running.service.in_progress == 0)
    fake.gate.set()
    assert running.client.post(_INFER, **_BODY).status_code == 200
    assert [shape[0] for _, (shape, *_) in fake.calls] == [2, 1]
    assert running.client.post(_INFER, content=content, headers=lengths).status_code == 200
    assert [shape[0] for _, (shape, *_) in fake.calls[2:]] == [2] * 5


def test_tritonclients_timeout_is_the_deadline(start: Callable[..., Any], fake: Any) -> None:
    running = start()
    fake.gate.clear()
    pixels = np.zeros((1, *_CANVAS), np.uint8)
    images = triton.InferInput("images", list(pixels.shape), "UINT8").set_data_from_numpy(pixels)
    url = running.client.base_url
    with triton.InferenceServerClient(f"{url.host}:{url.port}") as server:
        with pytest.raises(InferenceServerException, match=r"no answer within 0\.05 seconds") as caught:
            server.infer("fake", [images], timeout=50_000)  # microseconds
        fake.gate.set()
        assert server.infer("fake", [images], timeout=60_000_000).as_numpy("counts").tolist() == [1]
    assert caught.value.status() == "504"


def test_json_has_a_limit_of_its_own(start: Callable[..., Any]) -> None:
    running = start(max_json_bytes=100)
    response = running.client.post(_INFER, **_BODY)
    assert response.status_code == 413
    assert "JSON must have at most 100 bytes" in response.json()["error"]


def test_wrong_requests_leave_their_connection_usable(start: Callable[..., Any]) -> None:
    url = start().client.base_url
    wrong = [
        (b"{", "1"),
        (_BODY["content"], "999999"),
        (_BODY["content"], "-5"),
        (_BODY["content"][:-1], str(len(_HEADER))),
        (b"[" * 1000, "1000"),
    ]
    with socket.create_connection((url.host, url.port), timeout=60) as connection:
        answers = connection.makefile("rb")
        for body, length in [item for bad in wrong for item in (bad, (_BODY["content"], str(len(_HEADER))))]:
            lengths = f"Content-Length: {len(body)}\r\n{HEADER_LENGTH}: {length}"
            connection.sendall(f"POST {_INFER} HTTP/1.1\r\nHost: x\r\n{lengths}\r\n\r\n".encode() + body)
            good = body == _BODY["content"] and length == str(len(_HEADER))
            assert answers.readline().split()[1] == (b"200" if good else b"400")
            size = 0
            while (line := answers.readline()) != b"\r\n":
                name, _, value = line.decode().partition(":")
                size = int(value) if name.lower() == "content-length" else size
            assert len(answers.read(size)) == size > 0


def test_what_is_not_finite_is_null_in_json() -> None:
    scores = torch.tensor([[0.5, math.nan], [math.inf, 1.0]])
    boxes, counts = torch.zeros(2, 2, 4), torch.tensor([2, 1])
    wanted = (
        Wanted(TensorSpec("scores", "FP32", (-1, 2)), False),
        Wanted(TensorSpec("counts", "INT32", (-1,)), False),
    )
    request = InferRequest(None, Tensor(), None, None, wanted)
    answer = infer_answer(request, 'a "name"', CanvasDetections(boxes, scores, counts, None, {}))
    document = json.loads(bytes(answer.body), parse_constant=lambda name: pytest.fail(name))
    assert document["model_name"] == 'a "name"'
    assert document["outputs"][0]["data"] == [0.5, None, None, 1.0]
    assert document["outputs"][1] == {"name": "counts", "datatype": "INT32", "shape": [2], "data": [2, 1]}
    assert HEADER_LENGTH not in answer.headers


def test_long_outputs_are_written_in_pieces_without_a_seam() -> None:
    scores = torch.arange(9000.0)[None]
    wanted = (Wanted(TensorSpec("scores", "FP32", (-1, -1)), False),)
    request = InferRequest(None, Tensor(), None, None, wanted)
    found = CanvasDetections(torch.zeros(1, 9000, 4), scores, torch.tensor([9000]), None, {})
    document = json.loads(bytes(infer_answer(request, "a", found).body))
    assert document["outputs"][0]["data"] == scores[0].tolist()
