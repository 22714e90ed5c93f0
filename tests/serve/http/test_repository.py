"""Swaps of a running service: tritonclient, failures while loading, and requests meanwhile."""

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
import torch
import tritonclient.http as triton
from serve_process import ServeProcess
from services import asking
from small_detectors import SHALLOW
from tritonclient.utils import InferenceServerException
from waiting import PATIENCE, wait_until

from lensbox.export.pipeline import save_artifact
from lensbox.model import FaceDetector

KEY = "admin-0123456789abcdef"
_ADMIN = {"Authorization": f"Bearer {KEY}"}


@pytest.fixture(scope="module")
def versions(tmp_path_factory: pytest.TempPathFactory) -> dict[int, bytes]:
    """The files of two versions whose scores differ."""
    path, files = tmp_path_factory.mktemp("versions") / "a.pt", {}
    for seed in (1, 2):
        torch.manual_seed(seed)
        save_artifact(FaceDetector(SHALLOW).eval(), path, score_threshold=0.0109)
        files[seed] = path.read_bytes()
    return files


class Answer(NamedTuple):
    """An answer; its version is in the headers."""

    status: int
    version: str
    scores: list[float]


class Swapping:
    """A service over a folder with version 1 of the model `faces`, and the scores of both versions."""

    def __init__(self, folder: Path, process: ServeProcess, file: bytes) -> None:
        self.folder, self.process, self.file = folder, process, file
        self.client = httpx.Client(base_url=process.ready(), timeout=PATIENCE, headers=_ADMIN)
        self.scores = {"1": self.detect().scores}

    def detect(self, client: httpx.Client | None = None) -> Answer:
        response = (client or self.client).post("/v1/detect", content=self.file)
        scores = [one["score"] for one in response.json().get("detections", [])]
        return Answer(response.status_code, response.headers.get("lensbox-version", ""), scores)

    def load(self, version: int | None = None) -> httpx.Response:
        body = {} if version is None else {"parameters": {"version": str(version)}}
        return self.client.post("/v2/repository/models/faces/load", json=body)

    def engines(self) -> set[int]:
        """Return the processes of engines."""
        return set(self.process.workers()["engines"])


@pytest.fixture(scope="module")
def swapping(
    versions: dict[int, bytes], tmp_path_factory: pytest.TempPathFactory, png: bytes
) -> Iterator[Swapping]:
    folder = tmp_path_factory.mktemp("models") / "faces"
    folder.mkdir()
    (folder / "1.pt").write_bytes(versions[1])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LENSBOX_ADMIN_KEY", KEY)
        process = ServeProcess(None, "--models", str(folder.parent), "--frontends", "2")
    with process:
        swapping = Swapping(folder, process, png)
        (folder / "2.pt").write_bytes(versions[2])
        assert swapping.load().json() == {"model_name": "faces", "model_version": "2"}
        swapping.scores["2"] = swapping.detect().scores
        assert swapping.scores["1"] != swapping.scores["2"]
        wait_until(lambda: len(swapping.engines()) == 1)  # the old version's has ended
        yield swapping
        swapping.client.close()


def test_tritonclient_loads_and_unloads(swapping: Swapping) -> None:
    url = swapping.client.base_url
    policy = {"version_policy": {"specific": {"versions": [1]}}}
    with triton.InferenceServerClient(f"{url.host}:{url.port}") as client:
        for headers in ({}, {"Authorization": "Bearer other-0123456789abcdef"}):
            with pytest.raises(InferenceServerException, match="send the admin key"):
                client.load_model("faces", headers=headers)
        client.load_model("faces", headers=_ADMIN, config=json.dumps(policy))
        assert client.is_model_ready("faces", "1")
        assert not client.is_model_ready("faces", "2")
        images = triton.InferInput("images", [1, 1, 256, 256], "UINT8")
        images.set_data_from_numpy(torch.zeros(1, 1, 256, 256, dtype=torch.uint8).numpy())
        answer = client.infer("faces", [images]).get_response()
        assert (answer["model_name"], answer["model_version"]) == ("faces", "1")
        states = {row["version"]: row["state"] for row in client.get_model_repository_index()}
        assert states == {"1": "READY", "2": "UNAVAILABLE"}
        client.unload_model("faces", headers=_ADMIN)
        wait_until(lambda: not swapping.engines())
        assert not client.is_server_ready()
        assert swapping.detect().status == 503
        client.load_model("faces", headers=_ADMIN)
        assert client.is_model_ready("faces", "2")


def test_loads_only_what_the_body_names_rightly(swapping: Swapping) -> None:
    path = "/v2/repository/models/faces/load"
    bodies: list[Any] = [
        [],
        *({"parameters": wrong} for wrong in (1, {"version": "x"}, {"version": "1\n"}, {"file:1.pt": ""})),
    ]
    for body in bodies:
        assert swapping.client.post(path, json=body).status_code == 400


def test_a_failed_load_leaves_the_old_version(swapping: Swapping, versions: dict[int, bytes]) -> None:
    """`processes/test_repository.py` has other failures, `tests/runtimes` files that cannot be loaded."""
    before, engines, file = swapping.detect().version, swapping.engines(), swapping.folder / "3.pt"
    file.write_bytes(versions[1])
    message = "ended with SIGKILL while it loaded"
    with ThreadPoolExecutor(1) as pool:
        loading = pool.submit(swapping.load)
        wait_until(lambda: len(swapping.engines()) > len(engines))
        (new,) = swapping.engines() - engines
        os.kill(new, signal.SIGKILL)
        response = loading.result()
    assert response.status_code == 409
    assert message in response.json()["error"]
    wait_until(lambda: message in swapping.process.log)
    for headers, knows in (({}, True), ({"Authorization": ""}, False)):  # the reason may name paths
        index = swapping.client.post("/v2/repository/index", headers=headers).text
        assert (message in index) is knows
        assert knows or "the load failed; " in index
    file.unlink()
    assert swapping.detect() == (200, before, swapping.scores[before])
    wait_until(lambda: swapping.engines() == engines)
    failed = 'lensbox_model_loads_total{model="faces",outcome="failed"}'
    wait_until(lambda: failed in swapping.client.get("/metrics").text)


def test_a_swap_goes_on_after_front_ends_are_killed(swapping: Swapping) -> None:
    """The client of a front end that is killed gets no answer; the load goes on."""
    before, engines = swapping.detect().version, swapping.engines()
    other = 3 - int(before)
    with ThreadPoolExecutor(1) as pool, contextlib.suppress(httpx.TransportError):
        loading = pool.submit(swapping.load, other)
        wait_until(lambda: len(swapping.engines()) > len(engines))
        for killed in swapping.process.workers()["frontends"]:
            os.kill(killed, signal.SIGKILL)
        loading.result()
    swapping.process.ready()
    wait_until(lambda: swapping.detect().version == str(other))
    wait_until(lambda: len(swapping.engines()) == 1 and not swapping.engines() & engines)
    assert swapping.detect() == (200, str(other), swapping.scores[str(other)])


def test_a_restarted_engine_serves_what_was_loaded(swapping: Swapping, versions: dict[int, bytes]) -> None:
    assert swapping.load(1).status_code == 200
    wait_until(lambda: len(swapping.engines()) == 1)  # the old version's has ended
    (swapping.folder / "1.pt").write_bytes(versions[2])
    (killed,) = swapping.engines()
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: bool(swapping.engines() - {killed}))
    wait_until(lambda: swapping.detect().status == 200)
    assert swapping.detect() == (200, "1", swapping.scores["1"])
    wait_until(lambda: 'restarts_total{model="faces"} ' in swapping.client.get("/metrics").text)
    wait_until(
        lambda: (
            "the engine of faces version 1 on cpu ended with SIGKILL and is restarted" in swapping.process.log
        )
    )
    (swapping.folder / "1.pt").write_bytes(versions[1])
    os.utime(swapping.folder / "2.pt")
    swapping.process.process.send_signal(signal.SIGHUP)  # loads the newest, which is new
    wait_until(lambda: swapping.detect().version == "2")


def swap_under_load(swapping: Swapping, swaps: int, connections: int) -> set[str]:
    """Swap while clients ask; return the versions that answered, and what is wrong with other answers."""

    def ask(client: httpx.Client) -> str:
        answer = swapping.detect(client)
        expected = pytest.approx(swapping.scores.get(answer.version), abs=1e-4)
        is_good = answer.status == 200 and answer.scores == expected
        return answer.version if is_good else f"{answer.status} {answer.version}"

    with asking(str(swapping.client.base_url), ask, connections) as found:
        for swap in range(swaps):
            assert swapping.load(1 + swap % 2).status_code == 200
            before = len(found)
            wait_until(lambda: len(found) > before + connections)  # noqa: B023
    return set(found)


def test_no_request_fails_while_versions_swap(swapping: Swapping) -> None:
    assert swap_under_load(swapping, 4, 8) == {"1", "2"}
    wait_until(lambda: len(swapping.engines()) == 1)


def _memory(pid: int) -> int:
    """Return the KiB of a process and its children, shared pages in parts."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    own = sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return own + sum(_memory(int(child)) for child in children)


@pytest.mark.exhaustive
def test_memory_and_answers_hold_over_many_swaps(swapping: Swapping) -> None:
    assert swap_under_load(swapping, 6, 32) == {"1", "2"}
    wait_until(lambda: len(swapping.engines()) == 1)
    before = _memory(swapping.process.process.pid)
    assert swap_under_load(swapping, 24, 32) == {"1", "2"}
    wait_until(lambda: len(swapping.engines()) == 1)
    assert _memory(swapping.process.process.pid) < 1.05 * before
