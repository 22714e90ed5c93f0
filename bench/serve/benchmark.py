"""One run of `lensbox bench serve` from beginning to end."""

import base64
import contextlib
import importlib.util
import io
import json
import os
import signal
import statistics
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
import PIL.Image
import torch

from lensbox.bench.environment import environment
from lensbox.bench.serve.figures import Figure, figures
from lensbox.bench.serve.load import Answers, Load
from lensbox.bench.serve.services import Service, apply_load, descendants, running
from lensbox.runtime import Artifact, load_artifact

CONNECTIONS = 64
CANVASES = 32  # in a request of the Open Inference Protocol
_DEADLINE_MS = 2000


@dataclass(frozen=True)
class Options:
    """What is to be run.

    artifact: the file that is served. image: the photograph that is sent, or None for a made-up JPEG of
    512 x 512. seconds: of each row. frontends: of our service; None is its default. load_processes: that
    send. requests: before the memory is looked at for the second time; 0 leaves that out. quick: no peers.
    """

    artifact: Path
    device: str
    image: Path | None = None
    seconds: float = 8.0
    frontends: int | None = None
    load_processes: int = 1
    requests: int = 0
    threads: int = 1
    quick: bool = False


@dataclass
class Row:
    """One load of one service. rate: answers with 200 a second, times `images`; seconds: of each of them."""

    name: str
    answers: Answers
    images: int = 1

    @property
    def rate(self) -> float:
        """Images a second."""
        return self.images * len(self.answers.seconds) / self.answers.duration

    def percentile(self, share: float) -> float:
        """Seconds within which that share of the answers came; NaN without answers."""
        ordered = sorted(self.answers.seconds)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


@dataclass
class ServeReport:
    """environment: names and values. rates: of the artifact in this process, images a second by name."""

    environment: list[tuple[str, str]]
    rates: dict[str, float] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    numbers: dict[str, float] = field(default_factory=dict)


def run(options: Options, say: Callable[[str], None]) -> list[Figure]:
    """Measures, says each row when it is there, and the figures at the end."""
    report = ServeReport(environment(torch.device(options.device), ("litserve", "uvicorn", "httptools")))
    for name, value in report.environment:
        say(f"{name}: {value}")
    with tempfile.TemporaryDirectory() as folder:
        file = options.image.read_bytes() if options.image else _made_up_jpeg()
        body = Path(folder, "body")
        body.write_bytes(file)
        _measure_in_process(options, file, report, say)
        with _ours(options) as service:
            _measure_ours(options, service, body, report, say)
            _measure_canvases(options, service, Path(folder, "canvases"), report, say)
            # Last, as front ends find the new engine one by one.
            _measure_recovery(service, file, report, say)
        if not options.quick:
            _measure_peers(options, file, Path(folder, "json"), report, say)
    found = figures(report, options.device)
    say("\n".join(str(figure) for figure in found))
    for note in report.notes:
        say(f"Note: {note}")
    return found


def _made_up_jpeg() -> bytes:
    """512 x 512 pixels of smooth waves and noise, about as large as a photograph of that size."""
    y, x = np.mgrid[0:512, 0:512]
    waves = [127 + 90 * np.sin(x / 37 + phase) * np.cos(y / 53 - phase) for phase in (0, 1, 2)]
    noise = np.random.default_rng(0).normal(0, 12, (512, 512, 1))
    pixels = (np.stack(waves, -1) + noise).clip(0, 255).astype(np.uint8)
    buffer = io.BytesIO()
    PIL.Image.fromarray(pixels).save(buffer, "JPEG", quality=90)
    return buffer.getvalue()


def _measure_in_process(
    options: Options, file: bytes, report: ServeReport, say: Callable[[str], None]
) -> None:
    torch.set_num_threads(options.threads)
    artifact = load_artifact(options.artifact, torch.device(options.device))
    sizes = (1, 2, 4, 8, 16) if options.device == "cpu" else (1, 32, 64, 256)
    artifact.capture(sizes)
    for size in sizes:
        files = [file] * (4 * size)
        detect_files = partial(_use_up, artifact, files, size)
        rate = _rate(detect_files, len(files), options.seconds / 4)
        report.rates[f"files in batches of {size}"] = rate
        say(f"in process, files in batches of {size}: {rate:.1f} images/s")
    seconds: list[float] = []
    end = time.perf_counter() + options.seconds / 2
    while time.perf_counter() < end:
        begin = time.perf_counter()
        artifact.detect_image(artifact.read_photo(file))
        seconds.append(time.perf_counter() - begin)
    report.numbers["one photograph in process"] = statistics.median(seconds)
    say(f"in process, one photograph: p50 {1000 * statistics.median(seconds):.2f} ms")
    if (canvas := artifact.metadata.canvas) is not None:
        size = sizes[-1]
        canvases = torch.zeros([size, canvas.channels, canvas.height, canvas.width], dtype=torch.uint8)

        def detect() -> None:
            artifact.detect(canvases)[0].cpu()

        report.rates["canvases"] = _rate(detect, size, options.seconds / 4)
        say(f"in process, canvases in batches of {size}: {report.rates['canvases']:.1f} images/s")


def _use_up(artifact: Artifact, files: list[bytes], batch_size: int) -> None:
    for _ in artifact.detect_files(files, batch_size):
        pass


def _rate(call: Callable[[], None], images: int, seconds: float) -> float:
    """Images a second of a call that takes that many."""
    call()
    started, count = time.perf_counter(), 0
    while time.perf_counter() < started + seconds:
        call()
        count += 1
    return count * images / (time.perf_counter() - started)


@contextlib.contextmanager
def _ours(options: Options) -> Iterator[Service]:
    command = [sys.executable, "-m", "lensbox.cli", "serve", "--artifact", str(options.artifact)]
    command += ["--device", options.device, "--log-level", "error", "--threads", str(options.threads)]
    if options.frontends is not None:
        command += ["--frontends", str(options.frontends)]
    with running(lambda port: [*command, "--port", str(port)], "/readyz") as service:
        yield service


def _measure_ours(
    options: Options, service: Service, body: Path, report: ServeReport, say: Callable[[str], None]
) -> None:
    load = _load_of(options, service, "/v1/detect", body, [])
    saturated = _add(Row(f"lensbox, {CONNECTIONS} connections", _load(options, load)), report, say)
    _add(Row("lensbox, 1 connection", apply_load(replace(load, connections=1))), report, say)
    _measure_memory(options, load, service, report, say)
    rate = 4 * saturated.rate
    deadline = [f"X-Request-Timeout-Ms: {_DEADLINE_MS}"]
    open_loop = replace(load, rate=rate, headers=deadline, connections=8 * CONNECTIONS)
    _add(Row(f"lensbox, open loop, {rate:.0f} requests/s", _load(options, open_loop)), report, say)
    report.numbers["deadline"] = _DEADLINE_MS / 1000


def _measure_memory(
    options: Options, load: Load, service: Service, report: ServeReport, say: Callable[[str], None]
) -> None:
    if not options.requests:
        return
    before = service.memory()
    answered = 0
    while answered < options.requests:
        answered += len(_load(options, replace(load, seconds=10.0, warm_seconds=0.0)).seconds)
    report.numbers["memory"] = service.memory() / before
    say(f"lensbox, memory after {answered} more requests: {report.numbers['memory']:.3f} of before")


def _measure_recovery(service: Service, file: bytes, report: ServeReport, say: Callable[[str], None]) -> None:
    """Kills the engine's process, where it is one of its own, and asks until there is an answer again."""
    workers = [pid for pid in descendants(service.process) if _name(pid) == "lensbox-engine"]
    if not workers:
        return
    request = urllib.request.Request(f"http://127.0.0.1:{service.port}/v1/detect", file)
    os.kill(workers[0], signal.SIGKILL)
    killed, missed = time.perf_counter(), False
    while time.perf_counter() < killed + 60:
        try:
            with urllib.request.urlopen(request, timeout=60):
                if missed:
                    break
        except (urllib.error.URLError, OSError):
            missed = True
        time.sleep(0.01)
    report.numbers["recovery"] = time.perf_counter() - killed
    say(f"lensbox, answers {report.numbers['recovery']:.2f} s after its engine was killed")


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _measure_canvases(
    options: Options, service: Service, body: Path, report: ServeReport, say: Callable[[str], None]
) -> None:
    """By the binary form of the Open Inference Protocol."""
    model = json.load(urllib.request.urlopen(f"http://127.0.0.1:{service.port}/v1/model"))
    path = f"/v2/models/{model['name']}"
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{service.port}{path}").close()
    except urllib.error.HTTPError:
        report.notes.append("canvases: this service has no /v2")
        return
    canvas = model["canvas"]
    shape = [CANVASES, canvas["channels"], canvas["height"], canvas["width"]]
    pixels = bytes(shape[0] * shape[1] * shape[2] * shape[3])
    inputs = {"name": "images", "datatype": "UINT8", "shape": shape}
    head = json.dumps(
        {
            "inputs": [{**inputs, "parameters": {"binary_data_size": len(pixels)}}],
            "parameters": {"binary_data_output": True},
        }
    ).encode()
    body.write_bytes(head + pixels)
    headers = [f"Inference-Header-Content-Length: {len(head)}"]
    answers = _load(options, _load_of(options, service, f"{path}/infer", body, headers))
    _add(Row(f"lensbox, {CANVASES} canvases by v2", answers, CANVASES), report, say)


def _measure_peers(
    options: Options, file: bytes, body: Path, report: ServeReport, say: Callable[[str], None]
) -> None:
    if importlib.util.find_spec("litserve") is None:
        report.notes.append("LitServe is not installed")
        return
    body.write_text(json.dumps({"image": base64.b64encode(file).decode()}))
    for workers in (1, 8):
        for batch in (1, 8, 32):
            name = f"LitServe, {workers} workers, batch {batch}"
            try:
                with running(partial(_litserve_command, options, workers, batch), "/health") as service:
                    load = _load_of(options, service, "/predict", body, ["Content-Type: application/json"])
                    _add(Row(name, _load(options, load)), report, say)
            except RuntimeError as error:
                report.notes.append(f"{name}: {error}")


def _litserve_command(options: Options, workers: int, batch: int, port: int) -> list[str]:
    numbers = [str(number) for number in (port, workers, batch, options.threads)]
    module = "lensbox.bench.serve.litserve_peer"
    return [sys.executable, "-m", module, str(options.artifact), options.device, *numbers]


def _load_of(options: Options, service: Service, path: str, body: Path, headers: list[str]) -> Load:
    """The closed loop of many connections."""
    warm_seconds = min(2.0, options.seconds / 4)
    return Load(
        "127.0.0.1", service.port, path, str(body), headers, CONNECTIONS, options.seconds, warm_seconds
    )


def _load(options: Options, load: Load) -> Answers:
    return apply_load(load, options.load_processes)


def _add(row: Row, report: ServeReport, say: Callable[[str], None]) -> Row:
    report.rows.append(row)
    times = " ".join(f"p{share:g} {1000 * row.percentile(share / 100):.1f}" for share in (50, 90, 99))
    say(f"{row.name}: {row.rate:.1f} images/s, {times} ms, statuses {row.answers.statuses}")
    return row
