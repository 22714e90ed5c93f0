"""The application on a real cluster of one machine. LENSBOX_REQUIRE_RAY=1 makes a missing Ray a failure."""

import gc
import os
import warnings
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from services import Encode, asking, free_port
from waiting import wait_until

from lensbox.runtime import Artifact
from lensbox.serve.ray.settings import read_settings

if os.environ.get("LENSBOX_REQUIRE_RAY") != "1":
    pytest.importorskip("ray", reason="ray is not installed (lensbox[ray])")

pytestmark = pytest.mark.filterwarnings("ignore")  # of Ray's own code

CLIENTS = 6
_ENVIRONMENT = {
    "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH": "lensbox.serve.ray.proxy:middlewares",
    "RAY_AUTH_MODE": "disabled",  # otherwise Ray stores a token in the user's home
    "RAY_USAGE_STATS_ENABLED": "0",
}


@pytest.fixture(scope="module")
def url(artifact_path: Path) -> Iterator[str]:
    """The address of two replicas, each with half a core."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in _ENVIRONMENT.items():
            patch.setenv(name, value)
        import ray
        from ray import serve

        from lensbox.serve.ray.app import deployment

        # A small object store: requests do not use it.
        ray.init(num_cpus=2, object_store_memory=80 << 20, include_dashboard=False)
        try:
            port = free_port()
            serve.start(http_options={"host": "127.0.0.1", "port": port})
            two = deployment(read_settings({"artifact": artifact_path, "device": "cpu"})).options(
                autoscaling_config={"min_replicas": 2, "max_replicas": 2}, ray_actor_options={"num_cpus": 0.5}
            )
            serve.run(two.bind(), name="lensbox")
            yield f"http://127.0.0.1:{port}"
            serve.shutdown()
        finally:
            ray.shutdown()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                gc.collect()  # Ray's handles of its processes, which have ended


def test_a_replica_serves_all_routes(url: str, artifact: Artifact, png: bytes) -> None:
    with httpx.Client(base_url=url, timeout=60) as client:
        assert client.get("/readyz").json()["status"] == "ready"
        assert client.get(f"/v2/models/{artifact.metadata.name}/ready").status_code == 200
        assert client.get("/nothing").json()["code"] == "not_found"
        answer = client.post("/v1/detect", content=png).json()
    found = artifact.detect_image(artifact.read_photo(png))
    scores = [detection["score"] for detection in answer["detections"]]
    assert scores == pytest.approx(found.scores.tolist(), abs=1e-3)
    assert scores


def test_no_request_is_lost_when_a_replica_dies(url: str, encode: Encode) -> None:
    """Each request gets 200 or 503, and Ray replaces the killed replica."""
    import ray
    from ray.util import list_named_actors

    def replicas() -> list[str]:
        names = [actor["name"] for actor in list_named_actors(all_namespaces=True)]
        return [name for name in names if "#lensbox#" in name]

    file = encode("PNG", size=(1200, 900))  # decodes slowly, so that each replica is nearly always busy

    def ask(client: httpx.Client) -> str:
        answer = client.post("/v1/detect", content=file)
        if answer.status_code == 503:
            assert answer.headers["Retry-After"] == "1"
            assert answer.json()["code"] == "not_ready"
        return str(answer.status_code)

    def wait_for_answers(more: int) -> None:
        until = statuses.count("200") + more
        wait_until(lambda: statuses.count("200") >= until)

    with asking(url, ask, CLIENTS) as statuses:
        wait_for_answers(50)
        ray.kill(ray.get_actor(replicas()[0], namespace="serve"))
        wait_for_answers(50)
        wait_until(lambda: len(replicas()) == 2)
        wait_for_answers(50)
    assert set(statuses) <= {"200", "503"}
    assert statuses.count("503") <= CLIENTS  # at most the requests in progress at the killed replica
