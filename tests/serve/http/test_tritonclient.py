"""NVIDIA's client, unchanged, against the service over a real artifact."""

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import numpy as np
import pytest
import torch
import tritonclient.http as triton
from v2_requests import MODEL

from lensbox.runtime.artifact import Artifact
from lensbox.runtime.device import largest_batch

Pixels = np.ndarray[Any, Any]
Infer = Callable[..., triton.InferResult]

_THRESHOLDS = ("score_threshold", "iou_threshold")


@pytest.fixture(scope="module")
def server(client: httpx.Client) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(f"{client.base_url.host}:{client.base_url.port}") as server:
        yield server


@pytest.fixture(scope="module")
def pixels() -> Pixels:
    """Canvases, uint8 [30, 1, 256, 256], no two of them alike."""
    y, x = np.mgrid[0:256, 0:256]
    waves = [127 + 120 * np.sin(x / (9 + image)) * np.cos(y / (23 - image / 2)) for image in range(30)]
    return np.stack(waves)[:, None].astype(np.uint8)


def _images(pixels: Pixels, binary: bool = True) -> triton.InferInput:
    tensor = triton.InferInput("images", list(pixels.shape), "UINT8")
    return tensor.set_data_from_numpy(pixels, binary_data=binary)


def _threshold(name: str, value: float) -> triton.InferInput:
    return triton.InferInput(name, [1], "FP32").set_data_from_numpy(np.array([value], np.float32))


@pytest.fixture
def infer(server: triton.InferenceServerClient, artifact: Artifact) -> Infer:
    """Send canvases; assert that the result is what the artifact finds in each canvas alone."""

    def infer(pixels: Pixels, binary: bool = True, **options: Any) -> triton.InferResult:
        thresholds = {name: options.pop(name) for name in _THRESHOLDS if name in options}
        inputs = [_images(pixels, binary), *(_threshold(*item) for item in thresholds.items())]
        result = server.infer(MODEL, inputs, **options)
        for index, canvas in enumerate(pixels):
            boxes, scores, counts = artifact.detect(torch.from_numpy(canvas[None]), **thresholds)
            count = int(counts[0])
            assert result.as_numpy("counts")[index] == count
            for name, values in (("boxes", boxes), ("scores", scores)):
                found = result.as_numpy(name)[index, :count]
                np.testing.assert_allclose(found, values[0, :count], rtol=1e-4, atol=1e-3)
        return result

    return infer


def test_health_index_configuration_and_statistics(server: triton.InferenceServerClient) -> None:
    assert server.is_server_ready()
    assert server.is_model_ready(MODEL, "1")
    assert [one["name"] for one in server.get_model_repository_index()] == [MODEL]
    config = server.get_model_config(MODEL)
    assert [one["name"] for one in config["input"]] == ["images", "score_threshold", "iou_threshold"]
    for statistics in (server.get_inference_statistics(), server.get_inference_statistics(MODEL, "1")):
        assert statistics["model_stats"][0]["name"] == MODEL


def test_all_outputs_in_binary_by_default(infer: Infer, pixels: Pixels) -> None:
    result = infer(pixels[:3], request_id="request 7")
    response = result.get_response()
    assert (response["id"], response["model_version"]) == ("request 7", "1")
    assert [output["parameters"]["binary_data_size"] for output in response["outputs"]] == [12288, 3072, 12]
    assert result.as_numpy("counts").dtype == np.int32
    assert result.as_numpy("counts").min() > 1


@pytest.mark.parametrize(("sent", "received"), [(True, False), (False, True), (False, False)])
def test_json_and_binary_give_the_same(infer: Infer, pixels: Pixels, sent: bool, received: bool) -> None:
    names = ("scores", "boxes", "counts")
    infer(pixels[:2], sent, outputs=[triton.InferRequestedOutput(name, received) for name in names])


@pytest.mark.parametrize(("sent", "received"), [("gzip", None), ("deflate", "gzip"), (None, "deflate")])
def test_compression(infer: Infer, pixels: Pixels, sent: str | None, received: str | None) -> None:
    infer(pixels[:2], request_compression_algorithm=sent, response_compression_algorithm=received)


def test_thresholds_are_inputs(infer: Infer, pixels: Pixels) -> None:
    assert infer(pixels[:4], score_threshold=0.5).as_numpy("counts").tolist() == [0, 0, 0, 0]
    merged, default = infer(pixels[:4], iou_threshold=0.0), infer(pixels[:4])
    assert merged.as_numpy("counts").sum() < default.as_numpy("counts").sum()


def test_computes_batches_larger_than_the_engines_limit(
    infer: Infer, artifact: Artifact, pixels: Pixels
) -> None:
    assert len(pixels) > largest_batch(artifact.device)
    assert infer(pixels).as_numpy("boxes").shape == (30, 256, 4)
