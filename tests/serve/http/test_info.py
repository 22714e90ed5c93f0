"""/healthz, /readyz and /v1/model through a service's life."""

import threading
from typing import Any

import httpx
import torch
from services import Start, problem_of
from waiting import wait_until

from lensbox.runtime.detect.artifact import Artifact


def test_a_loading_service_is_alive_but_not_ready(start_service: Start, fake: Any, png: bytes) -> None:
    loading = threading.Event()

    def load() -> Any:
        assert loading.wait(60)
        return fake

    client = start_service(load).client
    try:
        assert client.get("/healthz").json() == {"status": "alive"}
        for response in (
            client.get("/readyz"),
            client.get("/v1/model"),
            client.post("/v1/detect", content=png),
        ):
            assert response.headers["retry-after"] == "1"
            assert problem_of(response) == (503, "not_ready", "the model is still loading")
        for path in ("/v2/health/ready", "/v2/models/fake"):
            assert client.get(path).status_code == 503
            assert client.get(path).json() == {"error": "the model is still loading"}
    finally:
        loading.set()
    wait_until(lambda: client.get("/readyz").status_code == 200)
    assert client.get("/readyz").json() == {"status": "ready", "models": {"fake": "1"}}
    # A lost device ends readiness: the process of an engine then ends, and Ray replaces a replica.
    fake.error = fake.self_test_error = RuntimeError("CUDA error: an illegal memory access was encountered")
    response = client.post("/v1/detect", content=png)
    assert response.status_code == 500
    assert "CUDA" not in response.text
    for path in ("/readyz", "/v2/health/ready"):
        assert client.get(path).status_code == 503
        assert "the self-test fails after an error (RuntimeError)" in client.get(path).text


def test_a_service_that_failed_to_load_says_why(start_service: Start) -> None:
    def load() -> Any:
        raise RuntimeError("the file is gone")

    client = start_service(load).client
    wait_until(lambda: "still loading" not in client.get("/readyz").text)
    message = "the model cannot be used: the file is gone"
    assert problem_of(client.get("/readyz")) == (503, "not_ready", message)
    assert client.get("/healthz").status_code == 200


def test_model_describes_what_is_served(client: httpx.Client, artifact: Artifact) -> None:
    answer = client.get("/v1/model").json()
    assert answer["name"] == "face_detector"
    assert answer["weights_sha256"] == artifact.metadata.weights_sha256
    assert answer["defaults"]["score_threshold"] == artifact.metadata.defaults.score_threshold
    assert list(answer["self_test"]["image"]) == ["shape"]
    assert answer["service"]["device"] == "cpu"
    assert answer["service"]["torch"] == torch.__version__
    assert answer["service"]["limits"]["max_boxes"] == 100
