"""Protocol v2 with NVIDIA's client: results, large batches, deadlines, and numbers as JSON."""

import json
import math
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import pytest
import torch
import tritonclient.http as triton
from services import Start, connect
from torch import Tensor
from tritonclient.utils import InferenceServerException
from waiting import PATIENCE, wait_until

from lensbox.runtime import Artifact
from lensbox.serve.engine.jobs import CanvasJob
from lensbox.serve.errors import ApiError
from lensbox.serve.http.answers import TensorSpec
from lensbox.serve.http.v2 import HEADER_LENGTH, InferRequest, check_answer_size, infer_answer

MODEL = "face_detector"


def _ask(client: httpx.Client, tensor: dict[str, Any], binary: bytes = b"", **more: Any) -> tuple[Any, bytes]:
    """Return JSON and binary of the answer to a request with one canvas of zeros."""
    images = {"name": "images", "datatype": "UINT8", "shape": [1, 1, 256, 256], **tensor}
    header = json.dumps({"inputs": [images], **more}).encode()
    headers = {HEADER_LENGTH: str(len(header))} if binary else {}
    response = client.post(f"/v2/models/{MODEL}/infer", content=header + binary, headers=headers)
    assert response.status_code == 200, response.text
    length = int(response.headers.get(HEADER_LENGTH, len(response.content)))
    return json.loads(response.content[:length]), response.content[length:]


def test_forms_of_pixels_give_the_same_answer(client: httpx.Client) -> None:
    size = {"parameters": {"binary_data_size": 65536, "unknown": "x"}}
    whole, rest = _ask(client, size, bytes(65536), priority="high", id="")
    assert [output["name"] for output in whole["outputs"]] == ["boxes", "scores", "counts"]
    assert (rest, "id" in whole) == (b"", False)
    for data in ([0] * 65536, [[[[0] * 256] * 256]]):
        assert _ask(client, {"data": data, "parameters": None}, id=None, outputs=None) == (whole, b"")


def test_outputs_come_in_the_order_of_the_model(client: httpx.Client) -> None:
    zeros = {"data": [0] * 65536}
    outputs = [{"name": "counts"}, {"name": "scores", "parameters": {"binary_data": True}}]
    answer, binary = _ask(client, zeros, outputs=outputs)
    scores, counts = answer["outputs"]
    assert (scores["name"], scores["parameters"]) == ("scores", {"binary_data_size": 1024})
    assert (counts["datatype"], counts["shape"], len(counts["data"])) == ("INT32", [1], 1)
    assert len(binary) == 1024
    outputs[1] = {"name": "scores", "parameters": {"binary_data": False}}
    answer, binary = _ask(client, zeros, outputs=outputs, parameters={"binary_data_output": True})
    assert (len(answer["outputs"][0]["data"]), len(binary)) == (256, 4)


_NAMES = ("scores", "boxes", "counts")


@pytest.mark.parametrize(
    ("count", "binary", "thresholds", "options"),
    [
        (30, True, {}, {}),  # more than the engine's batch
        (3, True, {"score_threshold": 0.5, "iou_threshold": 0.0}, {"response_compression_algorithm": "gzip"}),
        (2, True, {}, {"outputs": [triton.InferRequestedOutput(name, False) for name in _NAMES]}),
        (2, False, {}, {"outputs": [triton.InferRequestedOutput(name, True) for name in _NAMES]}),
    ],
)
def test_results_are_those_of_the_artifact(
    client: httpx.Client, artifact: Artifact, count: int, binary: bool, thresholds: Any, options: Any
) -> None:
    y, x = np.mgrid[0:256, 0:256]
    waves = [127 + 120 * np.sin(x / (9 + image)) * np.cos(y / (23 - image / 2)) for image in range(count)]
    pixels = np.stack(waves)[:, None].astype(np.uint8)
    images = triton.InferInput("images", list(pixels.shape), "UINT8")
    inputs = [images.set_data_from_numpy(pixels, binary_data=binary)]
    for name, value in thresholds.items():
        tensor = triton.InferInput(name, [1], "FP32")
        inputs.append(tensor.set_data_from_numpy(np.array([value], np.float32)))
    with triton.InferenceServerClient(f"{client.base_url.host}:{client.base_url.port}") as server:
        result = server.infer(MODEL, inputs, request_id="request 7", **options)
    assert result.get_response()["id"] == "request 7"
    for index, canvas in enumerate(pixels):
        boxes, scores, counts = artifact.detect(torch.from_numpy(canvas[None]), **thresholds).values()
        assert result.as_numpy("counts")[index] == counts[0]
        for name, values in (("boxes", boxes), ("scores", scores)):
            found = result.as_numpy(name)[index, : counts[0]]
            np.testing.assert_allclose(found, values[0, : counts[0]], rtol=1e-4, atol=1e-3)


def test_labels_and_further_outputs_by_name(own_detector: tuple[Artifact, httpx.Client]) -> None:
    artifact, client = own_detector
    further: dict[str, tuple[str, tuple[int, ...]]] = {"labels": ("INT64", ())}
    if not artifact.metadata.classes:
        further = {"corners": ("FP32", (2, 2)), "embedding": ("FP32", (4,)), "cell": ("INT64", ())}
    url, name, canvas = client.base_url, artifact.metadata.name, artifact.metadata.canvas
    pixels = torch.randint(0, 256, (3, canvas.channels, canvas.height, canvas.width), dtype=torch.uint8)
    expected = artifact.detect(pixels)
    images = triton.InferInput("images", list(pixels.shape), "UINT8").set_data_from_numpy(pixels.numpy())
    with triton.InferenceServerClient(f"{url.host}:{url.port}") as server:
        metadata, result = server.get_model_metadata(name), server.infer(name, [images])
    assert metadata["inputs"][0]["shape"] == [-1, *pixels.shape[1:]]
    declared = {output["name"]: output for output in metadata["outputs"]}
    assert list(declared) == ["boxes", "scores", "counts", *further]
    slots = expected["boxes"].shape[1]
    for output, (datatype, shape) in further.items():
        assert declared[output] == {"name": output, "datatype": datatype, "shape": [-1, slots, *shape]}
    for output in result.get_response()["outputs"]:
        assert output["datatype"] == declared[output["name"]]["datatype"]
        assert output["shape"][1:] == declared[output["name"]]["shape"][1:]
    counts = expected["counts"].tolist()
    assert result.as_numpy("counts").tolist() == counts
    for output in declared.keys() - {"counts"}:
        for image, count in enumerate(counts):
            found, wanted = result.as_numpy(output)[image, :count], expected[output][image, :count]
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def _ten_canvases(server: triton.InferenceServerClient, **options: Any) -> Any:
    """Ask for detections in ten canvases, of which each has its number as its pixels."""
    pixels = np.arange(10, dtype=np.uint8)[:, None, None, None].repeat(2, 2).repeat(3, 3)
    images = triton.InferInput("images", list(pixels.shape), "UINT8").set_data_from_numpy(pixels)
    return server.infer("fake", [images], **options)


def test_the_deadline_or_a_hang_up_ends_a_large_batch(start: Start, fake: Any) -> None:
    fake.largest_batch = 2
    running = start()
    url = running.client.base_url
    fake.gate.clear()
    late = pytest.raises(InferenceServerException, match=r"no answer within 0\.3 seconds")
    with triton.InferenceServerClient(f"{url.host}:{url.port}") as server, late as caught:
        _ten_canvases(server, timeout=300_000)  # microseconds
    assert caught.value.status() == "504"
    wait_until(lambda: running.service.in_progress == 0)
    fake.gate.set()
    wait_until(lambda: running.jobs == 0)
    assert len(fake.calls) == 1
    fake.gate.clear()
    images = {"name": "images", "datatype": "UINT8", "shape": [10, 1, 2, 3], "data": [0] * 60}
    body = json.dumps({"inputs": [images]}).encode()
    with connect(url) as connection:
        head = f"POST /v2/models/fake/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body)
        wait_until(lambda: len(fake.calls) == 2)
    wait_until(lambda: running.service.in_progress == 0)
    fake.gate.set()
    wait_until(lambda: running.jobs == 0)
    assert len(fake.calls) < 6


def test_small_requests_come_between_the_parts_of_a_large_one(start: Start, fake: Any) -> None:
    fake.largest_batch = 2
    running = start()
    url = running.client.base_url
    fake.gate.clear()
    with triton.InferenceServerClient(f"{url.host}:{url.port}") as server, ThreadPoolExecutor() as pool:
        large = pool.submit(_ten_canvases, server)
        wait_until(lambda: len(fake.calls) == 1)
        running.send("/v1/loss", json={"predictions": [[0, 0, 1, 1]], "targets": [[0, 0, 1, 1]]})
        wait_until(lambda: running.jobs == 4)  # two images, two that wait as one job, the loss
        fake.gate.set()
        assert large.result(PATIENCE).as_numpy("boxes")[:, 0, 0].tolist() == list(range(10))
    assert running.statuses() == [200]
    assert [name for name, _ in fake.calls] == ["canvases", "canvases", "loss", *["canvases"] * 3]
    assert {shape[0] for name, (shape, *_) in fake.calls if name == "canvases"} == {2}


def test_numbers_as_json() -> None:
    scores = np.array([[0.5, math.nan], [math.inf, 1.0]], np.float32)
    found = {"scores": scores, "counts": np.array([2, 1], np.int32)}
    wanted = {"scores": False, "counts": False}
    served: Any = SimpleNamespace(name='a "name"', version="7")
    answer = infer_answer(InferRequest(None, CanvasJob((None, None), Tensor()), wanted), served, [found])
    document = json.loads(bytes(answer.body), parse_constant=lambda name: pytest.fail(name))
    assert (document["model_name"], document["model_version"]) == ('a "name"', "7")
    assert document["outputs"][0]["data"] == [0.5, None, None, 1.0]
    assert document["outputs"][1] == {"name": "counts", "datatype": "INT32", "shape": [2], "data": [2, 1]}
    assert HEADER_LENGTH not in answer.headers


def test_limits_the_size_of_answers() -> None:
    specs = {"boxes": TensorSpec("boxes", "FP32", (-1, 5, 4)), "counts": TensorSpec("counts", "INT32", (-1,))}
    check_answer_size((1 << 24) // (64 * 20 + 1), {"boxes": False, "counts": True}, specs)
    check_answer_size((1 << 24) // 21, {"boxes": True, "counts": True}, specs)
    for images, binary in (((1 << 18) // 20 + 1, False), ((1 << 24) // 20 + 1, True)):
        with pytest.raises(
            ApiError, match=f"{images - 1} images with these outputs, got {images} images"
        ) as caught:
            check_answer_size(images, {"boxes": binary}, specs)
        assert (caught.value.status, caught.value.code) == (413, "answer_too_large")
