"""One run of `lensbox bench serve`: the service beside LitServe and the artifact in process, in turns.

Services run as processes; wrk loads them.
"""

import base64
import contextlib
import io
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import PIL.Image
import torch

from lensbox.bench.measure import (
    UnavailableError,
    WrongAnswerError,
    cpu_seconds,
    describe_machine,
    markdown,
    number,
    say,
    spread,
)
from lensbox.cli.bench import summarize
from lensbox.common.errors import LensboxError
from lensbox.common.machine import keep_freed_memory
from lensbox.runtime import Artifact, load_artifact
from lensbox.runtime.detect.detection import detections_of_json
from lensbox.runtime.detect.self_test import Difference
from lensbox.runtime.device import choose_device
from lensbox.runtime.file.self_test import Tolerance

HEADER = ("service", "images/s", "x", "p50, ms", "p99, ms", "CPU ms an image", "failed")
SETTINGS = tuple((workers, batch) for workers in (1, 8) for batch in (1, 8, 32))  # of LitServe
# A service may decode a JPEG file in another way than the artifact in process.
_TOLERANCE = Tolerance(boxes=2.0, scores=0.1, loss=0.0, iou=0.1)
_TURNS = 3
_WARM_SECONDS = 1
_SCRIPT = Path(__file__).with_name("post.lua")
_SENDER_THREADS = 4
_START_TIMEOUT, _END_TIMEOUT = 180.0, 40.0  # seconds


class Load(NamedTuple):
    """One load of one service.

    rate: images per second that were answered with 200; a request has one image. p50, p99: seconds of all
    answers. cpu: seconds of CPU time per image, of all processes of the service. failed: requests without an
    answer, or with another one.
    """

    rate: float
    p50: float
    p99: float
    cpu: float
    failed: int = 0


class ServerProgram(NamedTuple):
    """A program that serves the artifact.

    arguments: of Python; the port follows. path: to POST the file `body` to, with its content type.
    """

    name: str
    arguments: tuple[str, ...]
    path: str
    body: Path
    content_type: str


Check = Callable[[Any], None]  # takes the JSON of an answer; raises for a wrong one


def run_load_test(artifact: Path, device: str, connections: Sequence[int], seconds: int, quick: bool) -> None:
    """Run the loads and print a table for each number of connections.

    artifact: the file to serve. seconds: of each load. quick: without LitServe.
    Raise WrongAnswerError, UnavailableError if the service or wrk cannot be started, ArtifactError.
    """
    keep_freed_memory()
    torch.set_num_threads(1)
    say(describe_machine("litserve", "httptools"))
    detector = load_artifact(artifact, choose_device(device))
    detector.capture([1])
    photo = photo_of(detector)
    with tempfile.TemporaryDirectory() as folder:
        lensbox, *peers = _programs(Path(folder), photo, str(artifact), device)
        if quick or find_spec("litserve") is None:
            peers = []
        check = partial(require_same, detector, photo)
        fastest = _fastest(peers, check, connections, seconds)
        with running(lensbox, check) as load:
            for count in connections:
                with contextlib.ExitStack() as stack:
                    loads = {lensbox.name: partial(load, count)}
                    if peer := fastest.get(count):
                        loads[peer.name] = partial(stack.enter_context(running(peer, check)), count)
                    if count == 1:
                        loads["in process"] = partial(_in_process, detector, photo)
                    lines = _lines(loads, seconds)
                size = f"JPEG of 512 x 512, {len(photo) / 1000:.0f} kB"
                title = f"{count} connection{'s' if count > 1 else ''}, {size}, {detector.device.type}"
                say(markdown(title, HEADER, lines))


def photo_of(artifact: Artifact) -> bytes:
    """Return a JPEG file of 512 x 512 pixels, about 90 kB: the picture of the self-test, with noise."""
    channels = artifact.metadata.self_test.image.expand(3, -1, -1)
    picture = PIL.Image.fromarray(channels.permute(1, 2, 0).numpy()).resize((512, 512))
    noisy = np.asarray(picture) + np.random.default_rng(0).normal(0, 6, (512, 512, 1))
    file = io.BytesIO()
    PIL.Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(file, "JPEG", quality=90)
    return file.getvalue()


def require_same(artifact: Artifact, photo: bytes, answer: Any) -> None:
    """Raise WrongAnswerError if an answer, as of /v1/detect, differs from the artifact in process."""
    wanted, found = artifact.detect_image(photo), detections_of_json(answer, artifact.classes)
    difference = Difference()
    difference.add(wanted, found, artifact.metadata.thresholds, _TOLERANCE, "the answer")
    if difference.unexplained:
        raise WrongAnswerError("; ".join(difference.unexplained))


def _programs(folder: Path, photo: bytes, artifact: str, device: str) -> list[ServerProgram]:
    """Return the service, and LitServe in each setting."""
    raw, encoded = folder / "photo.jpg", folder / "photo.json"
    raw.write_bytes(photo)
    encoded.write_text(json.dumps({"image": base64.b64encode(photo).decode()}))
    options = ("--artifact", artifact, "--device", device, "--log-level", "error")
    serve = ("-m", "lensbox.cli", "serve", *options, "--port")
    programs = [ServerProgram("lensbox", serve, "/v1/detect", raw, "image/jpeg")]
    for workers, batch in SETTINGS:
        name = f"LitServe, {workers} workers, batches of {batch}"
        peer = ("-m", "lensbox.bench.serve.litserve_peer", artifact, device, str(workers), str(batch))
        programs.append(ServerProgram(name, peer, "/predict", encoded, "application/json"))
    return programs


def _fastest(
    peers: Sequence[ServerProgram], check: Check, connections: Sequence[int], seconds: int
) -> dict[int, ServerProgram]:
    """Load the peers; return the fastest one for each number of connections."""
    rates: dict[int, dict[ServerProgram, float]] = {count: {} for count in connections}
    for peer in peers:
        try:
            with running(peer, check) as load:
                for count in connections:
                    rates[count][peer] = load(count, seconds).rate
                    say(f"{peer.name}, {count} connections: {number(rates[count][peer])} images/s")
        except LensboxError as error:
            say(f"{peer.name}: {error}")
    return {count: max(found, key=found.__getitem__) for count, found in rates.items() if found}


def _in_process(artifact: Artifact, photo: bytes, seconds: int) -> Load:
    """Detect in one photograph after another, from its file to its boxes."""
    times, cpu = [time.perf_counter()], time.process_time()
    while times[-1] < times[0] + seconds:
        artifact.detect_image(artifact.read_photo(photo))
        times.append(time.perf_counter())
    count, cpu = len(times) - 1, time.process_time() - cpu
    p50, p99 = np.quantile(np.diff(times), [0.5, 0.99]).tolist()
    return Load(count / (times[-1] - times[0]), p50, p99, cpu / count)


def _lines(loads: Mapping[str, Callable[[int], Load]], seconds: int) -> list[list[str]]:
    """Run the loads in turns; return a line for each, with medians over the turns. Lensbox comes first."""
    for load in loads.values():
        load(_WARM_SECONDS)
    turns = np.array([[load(seconds) for load in loads.values()] for _ in range(_TURNS)])
    lines = []
    for name, taken, medians in zip(loads, turns.swapaxes(0, 1), np.median(turns, 0), strict=True):
        rate = summarize(taken[:, 0].tolist())
        times = [number(1000 * value) for value in medians[1:4]]
        first = np.median(turns[:, 0, 0])
        lines.append([name, spread(rate), number(rate.median / first), *times, f"{taken[:, 4].sum():.0f}"])
    return lines


@contextlib.contextmanager
def running(program: ServerProgram, check: Check) -> Iterator[Callable[[int, int], Load]]:
    """Start a program on a free port, and end it after the block.

    The value takes connections and seconds, and sends the file again and again, with wrk. Raise
    UnavailableError, and what the check of the first answer raises.
    """
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}{program.path}"
    request = urllib.request.Request(url, program.body.read_bytes(), {"Content-Type": program.content_type})
    command = [sys.executable, *program.arguments, str(port)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}  # one thread an inference, as in process
    # A pipe without a reader would block a service that writes much.
    with tempfile.TemporaryFile("w+", errors="replace") as said:
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=said, start_new_session=True
        )
        try:
            deadline, answer = time.monotonic() + _START_TIMEOUT, None
            while answer is None:
                if process.poll() is not None or time.monotonic() > deadline:
                    said.seek(0)
                    lines = said.read().strip().splitlines() or ["it said nothing"]
                    raise UnavailableError(f"the service did not start: {lines[-1]}")
                with contextlib.suppress(OSError), urllib.request.urlopen(request, timeout=60) as response:
                    answer = json.load(response)
                time.sleep(0.2)
            check(answer)
            yield partial(_load, program, url, process.pid)
        finally:
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=_END_TIMEOUT)
            with contextlib.suppress(ProcessLookupError):  # nothing is left
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _load(program: ServerProgram, url: str, process: int, connections: int, seconds: int) -> Load:
    wrk = shutil.which("wrk")
    if wrk is None:
        raise UnavailableError("wrk sends the requests and is not installed: apt-get install wrk")
    threads = min(connections, _SENDER_THREADS, os.cpu_count() or 1)
    command = [wrk, f"-t{threads}", f"-c{connections}", f"-d{seconds}s", "--timeout", "60s"]
    command += ["-s", str(_SCRIPT), url, "--", str(program.body), program.content_type]
    before = cpu_seconds(process)
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode != 0:
        raise UnavailableError(f"wrk failed: {run.stderr.strip() or run.stdout.strip()}")
    found = json.loads(run.stdout.splitlines()[-1])
    cpu = (cpu_seconds(process) - before) / max(found["answers"], 1)
    rate = (found["answers"] - found["rejected"]) / found["seconds"]
    return Load(rate, found["p50"], found["p99"], cpu, found["rejected"] + found["broken"])
