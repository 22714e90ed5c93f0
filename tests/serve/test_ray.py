"""The application on a real cluster of one machine. LENSBOX_REQUIRE_RAY=1 makes a missing Ray a failure."""

import importlib.util
import io
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import PIL.Image
import pytest
from free_port import free_port

from lensbox.runtime import Artifact
from lensbox.runtime.images.files import read_photo

PATIENCE = 180.0
CLIENTS = 6

if importlib.util.find_spec("ray") is None:
    if os.environ.get("LENSBOX_REQUIRE_RAY") == "1":
        raise ModuleNotFoundError("LENSBOX_REQUIRE_RAY=1, but ray is not installed: lensbox[ray]")
    pytest.skip("ray is not installed (lensbox[ray])", allow_module_level=True)


class Cluster:
    """Two replicas of the service, each with half a core, in a process that takes commands."""

    def __init__(self, artifact: Path, log: Path) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.log = log
        environment = {
            **os.environ,
            "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH": "lensbox.serve.ray_proxy:middlewares",
            "RAY_AUTH_MODE": "disabled",  # otherwise Ray stores a token in the user's home
            "RAY_USAGE_STATS_ENABLED": "0",
            "OMP_NUM_THREADS": "1",
        }
        arguments = [f"artifact={artifact}", "device=cpu", "min_replicas=2", "max_replicas=2", "num_cpus=0.5"]
        with log.open("w") as stream:
            self.process = subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("ray_cluster.py")), str(port), *arguments],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stream,
                text=True,
            )

    def read(self) -> str:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.strip() == "ready" or line.strip().isdigit():  # skip Ray's own lines
                return line.strip()
        raise AssertionError(self.log.read_text())

    def ask(self, command: str) -> int:
        """Send a command. Return the number of replicas afterwards."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{command}\n")
        self.process.stdin.flush()
        return int(self.read())

    def close(self) -> None:
        """End the cluster."""
        try:
            self.process.communicate(timeout=PATIENCE)
        finally:
            self.process.kill()


@pytest.fixture(scope="module")
def cluster(artifact_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(artifact_path, tmp_path_factory.mktemp("ray") / "log")
    watchdog = threading.Timer(PATIENCE, cluster.process.kill)
    watchdog.start()
    try:
        assert cluster.read() == "ready"
        watchdog.cancel()
        yield cluster
    finally:
        watchdog.cancel()
        cluster.close()


def test_a_replica_serves_all_routes(
    cluster: Cluster, artifact: Artifact, png: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "photo.png"
    path.write_bytes(png)
    with httpx.Client(base_url=cluster.url, timeout=60) as client:
        assert client.get("/readyz").json() == {"status": "ready"}
        assert client.get("/v1/model").json()["name"] == artifact.metadata.name
        assert client.get(f"/v2/models/{artifact.metadata.name}/ready").status_code == 200
        assert client.get("/nothing").json()["code"] == "not_found"
        answer = client.post("/v1/detect", content=png).json()
    found = artifact.detect_image(read_photo(path))
    assert len(answer["detections"]) == len(found.scores) > 0
    scores = [detection["score"] for detection in answer["detections"]]
    assert scores == pytest.approx(found.scores.tolist(), abs=1e-3)


@pytest.fixture(scope="module")
def slow_png() -> bytes:
    """A PNG that decodes slowly, so that each replica is nearly always busy."""
    noise = np.random.default_rng(0).integers(0, 256, (900, 1200, 3), np.uint8)
    buffer = io.BytesIO()
    PIL.Image.fromarray(noise).save(buffer, "PNG")
    return buffer.getvalue()


def test_no_request_is_lost_when_a_replica_dies(cluster: Cluster, slow_png: bytes) -> None:
    """Each request gets 200 or 503, and Ray replaces the killed replica."""
    statuses: Counter[int] = Counter()
    lost: list[Exception] = []
    stop = threading.Event()

    def send() -> None:
        with httpx.Client(base_url=cluster.url, timeout=60) as client:
            while not stop.is_set():
                try:
                    answer = client.post("/v1/detect", content=slow_png)
                except httpx.HTTPError as error:
                    lost.append(error)
                    return
                if answer.status_code == 503:
                    assert answer.headers["Retry-After"] == "1"
                    assert answer.json()["code"] == "not_ready"
                statuses[answer.status_code] += 1

    def wait_for(good: int) -> None:
        until = time.monotonic() + PATIENCE
        while statuses[200] < good:
            assert not lost, cluster.log.read_text()
            assert time.monotonic() < until, statuses
            time.sleep(0.05)

    assert cluster.ask("replicas") == 2
    threads = [threading.Thread(target=send) for _ in range(CLIENTS)]
    try:
        for thread in threads:
            thread.start()
        wait_for(50)
        cluster.ask("kill")
        wait_for(statuses[200] + 50)
        until = time.monotonic() + PATIENCE
        while cluster.ask("replicas") < 2:
            assert time.monotonic() < until
            time.sleep(0.5)
        wait_for(statuses[200] + 50)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    print(f"statuses: {dict(statuses)}")
    assert not lost
    assert set(statuses) <= {200, 503}, statuses
    assert statuses[503] <= CLIENTS  # at most the requests in progress at the killed replica
