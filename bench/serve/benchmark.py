"""One run of `lensbox bench serve`."""

import base64
import contextlib
import importlib.util
import io
import json
import os
import signal
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import PIL.Image

from lensbox.artifact.metadata import Canvas
from lensbox.bench.machine import describe_machine
from lensbox.bench.report import Report, Table, number
from lensbox.bench.serve.answers import LOAD_HEADER, Loaded, Measured, Pair, figures
from lensbox.bench.serve.in_process import InProcess
from lensbox.bench.serve.load import Load
from lensbox.bench.serve.services import Service, apply_load, descendants, load_cores, running, without

ROWS = ("throughput", "latency", "canvases", "overload", "memory", "recovery", "litserve")
CONNECTIONS = 64
CANVASES = 32  # in a request of the Open Inference Protocol, over a quarter of the connections
_TURNS = 3
_MOST_CONNECTIONS = 800  # fewer than the service keeps open: each front end has a share of those
_DEADLINE_MS = 2000
_BOXES = ("predictions", "targets")
_FIRST_REQUESTS = 1000  # before the memory is looked at for the first time


class LitServe(NamedTuple):
    """How LitServe is run. threads: of one inference on a CPU; None: as many as the service's."""

    workers: int
    batch: int
    threads: int | None = None

    def __str__(self) -> str:
        name = f"LitServe, {self.workers} workers, batch {self.batch}"
        return name if self.threads is None else f"{name}, threads {self.threads}"


LITSERVES = tuple(LitServe(workers, batch) for workers in (1, 8) for batch in (1, 8, 32))


@dataclass(frozen=True)
class Options:
    """What to run, and for how long.

    artifact: the file that is served, of any format. output: folder for serve.md, or None. image: the
    photograph that is sent; None for a made-up JPEG of 512 x 512. rows: of `ROWS`. seconds: of each load;
    overload_seconds: of the overload. frontends: of our service; None is its default. load_processes: number
    of sending processes; None is one, or one per core that is kept for them. requests: number of requests
    before memory is looked at again. threads: of one inference on a CPU.
    """

    artifact: Path
    device: str
    output: Path | None = None
    image: Path | None = None
    rows: tuple[str, ...] = ROWS
    seconds: float = 8.0
    overload_seconds: float = 60.0
    frontends: int | None = None
    load_processes: int | None = None
    requests: int = 100_000
    threads: int = 1
    peers: tuple[LitServe, ...] = LITSERVES


def run(options: Options, say: Callable[[str], None]) -> Report:
    """Measure, say and write each load when it is there, and the figures at the end."""
    machine = describe_machine(options.device, ("litserve", "uvicorn", "httptools"))
    report = Report("serve", machine, say, options.output)
    report.begin()
    cores = load_cores()
    if cores:
        say(f"{len(cores)} cores are kept for the senders, the others for the services and this process")
    with tempfile.TemporaryDirectory() as folder, without(cores):
        measured = _Run(options, Path(folder), cores, report).measured()
    report.finish(figures(measured, options.device))
    return report


def made_up_jpeg() -> bytes:
    """Return 512 x 512 pixels of smooth waves and noise, about as large as a photograph of that size."""
    y, x = np.mgrid[0:512, 0:512]
    waves = [127 + 90 * np.sin(x / 37 + phase) * np.cos(y / 53 - phase) for phase in (0, 1, 2)]
    noise = np.random.default_rng(0).normal(0, 12, (512, 512, 1))
    pixels = (np.stack(waves, -1) + noise).clip(0, 255).astype(np.uint8)
    buffer = io.BytesIO()
    PIL.Image.fromarray(pixels).save(buffer, "JPEG", quality=90)
    return buffer.getvalue()


def canvases_body(canvas: Canvas, count: int) -> tuple[bytes, list[str]]:
    """Return a v2 request with so many black canvases, and the lines of its head."""
    shape = [count, canvas.channels, canvas.height, canvas.width]
    pixels = bytes(count * canvas.channels * canvas.height * canvas.width)
    images = {"name": "images", "datatype": "UINT8", "shape": shape}
    header = json.dumps(
        {
            "inputs": [{**images, "parameters": {"binary_data_size": len(pixels)}}],
            "parameters": {"binary_data_output": True},
        }
    ).encode()
    return header + pixels, [f"Inference-Header-Content-Length: {len(header)}"]


class _Run:
    def __init__(self, options: Options, folder: Path, cores: list[int], report: Report) -> None:
        self._options = options
        self._folder = folder
        self._cores = cores
        self._senders = options.load_processes or len(cores) or 1
        self._report = report
        self._say = report.say
        self._measured = Measured()
        self._loads: list[list[str]] = []
        self._file = options.image.read_bytes() if options.image else made_up_jpeg()
        self._body = self._written("photograph", self._file)

    def measured(self) -> Measured:
        """Run the requested rows, and those that they are divided by."""
        rows = self._options.rows
        if {"throughput", "latency", "canvases", "overload", "memory", "litserve"} & set(rows):
            in_process = self._in_process()
            with self._ours(self._options.frontends) as service:
                if {"throughput", "overload", "litserve"} & set(rows):
                    self._measure_throughput(service, in_process)
                if "latency" in rows:
                    self._measure_latency(service, in_process)
                if "canvases" in rows:
                    self._measure_canvases(service, in_process)
                if "overload" in rows:
                    self._measure_overload(service)
                if "memory" in rows:
                    self._measure_memory(service)
        if "recovery" in rows:
            self._measure_recovery()
        if "litserve" in rows:
            self._measure_peers()
        return self._measured

    def _in_process(self) -> InProcess:
        options = self._options
        in_process = InProcess(str(options.artifact), options.device, options.threads, self._file)
        if "throughput" in options.rows:
            in_process.find_best_batch(options.seconds / 4, self._say)
        return in_process

    @contextlib.contextmanager
    def _ours(self, frontends: int | None) -> Iterator[Service]:
        options = self._options
        command = [sys.executable, "-m", "lensbox.common", "serve", "--artifact", str(options.artifact)]
        command += ["--device", options.device, "--log-level", "error", "--threads", str(options.threads)]
        if frontends is not None:
            command += ["--frontends", str(frontends)]
        with running(lambda port: [*command, "--port", str(port)], "/readyz") as service:
            yield service

    def _measure_throughput(self, service: Service, in_process: InProcess) -> None:
        pair = Pair()
        rows = []
        for _ in range(_TURNS):
            rows.append(self._add(f"lensbox, {CONNECTIONS} connections", self._load(service), service))
            pair.service.append(rows[-1].rate)
            if "throughput" in self._options.rows:
                seconds = self._options.seconds / 2
                pair.in_process.append(in_process.file_rate(in_process.best_batch, seconds))
                self._add_in_process("in process, files", rate=pair.in_process[-1])
        self._measured.saturated = sorted(rows, key=lambda row: row.rate)[len(rows) // 2]
        if pair.in_process:
            self._measured.throughput = pair

    def _measure_latency(self, service: Service, in_process: InProcess) -> None:
        self._measured.latency = pair = Pair()
        load = replace(self._load(service), connections=1)
        for _ in range(_TURNS):
            row = self._add("lensbox, 1 connection", load, service, senders=1)
            pair.service.append(row.percentile(0.5))
            pair.in_process.append(in_process.photo_seconds(self._options.seconds / 2))
            self._add_in_process("in process, one photograph", p50=pair.in_process[-1])

    def _measure_canvases(self, service: Service, in_process: InProcess) -> None:
        self._measured.canvases = pair = Pair()
        model = json.load(urllib.request.urlopen(f"http://127.0.0.1:{service.port}/v1/model"))
        body, headers = canvases_body(in_process.canvas, CANVASES)
        path = f"/v2/models/{model['name']}/infer"
        load = self._load(service, path, self._written("canvases", body), headers)
        load = replace(load, connections=CONNECTIONS // 4)
        for _ in range(_TURNS):
            row = self._add(f"lensbox, {CANVASES} canvases by v2", load, service, CANVASES)
            pair.service.append(row.rate)
            pair.in_process.append(in_process.canvas_rate(self._options.seconds / 4))
            self._add_in_process("in process, canvases", rate=pair.in_process[-1])

    def _measure_overload(self, service: Service) -> None:
        """Send at four times the saturated rate, with a deadline per request."""
        assert self._measured.saturated is not None
        rate = 4 * self._measured.saturated.rate
        if not rate:
            self._report.notes.append("overload: not even the closed loop was answered with 200")
            return
        load = replace(
            self._load(service, headers=[f"X-Request-Timeout-Ms: {_DEADLINE_MS}"]),
            rate=rate,
            connections=_MOST_CONNECTIONS,
            seconds=self._options.overload_seconds,
        )
        self._measured.overloaded = row = self._add(
            f"lensbox, open loop, {rate:.0f} requests/s", load, service
        )
        statuses = row.answers.statuses
        whole = sum(statuses.values())
        reasons = {"unsent": "found all connections busy", "late": "were too many for the senders"}
        for status, why in reasons.items():
            if count := statuses.get(status, 0):
                self._report.notes.append(f"overload: {count / whole:.0%} of the requests {why}")
        self._report.notes.append(f"overload: the busiest sender computed {row.answers.busy:.0%} of the time")
        self._measured.deadline = _DEADLINE_MS / 1000

    def _measure_memory(self, service: Service) -> None:
        """On a CPU only a tenth of the requests are photographs, the others are losses of one pair of boxes:
        it takes minutes so, and whatever leaks with a request leaks with those too."""
        photographs = self._load(service)
        boxes = self._written("boxes", json.dumps({name: [[0, 0, 1, 1]] for name in _BOXES}).encode())
        losses = self._load(service, "/v1/loss", boxes)
        count = self._options.requests
        share = count // 10 if self._options.device == "cpu" else count
        first = self._memory_after(service, photographs, _FIRST_REQUESTS, "photographs")
        last = self._memory_after(service, photographs, share, "photographs")
        if share < count:
            last = self._memory_after(service, losses, count - share, "losses")
        self._measured.memory = last / first

    def _memory_after(self, service: Service, load: Load, count: int, name: str) -> int:
        load = replace(load, seconds=3600.0, warm_seconds=0.0, most=count)
        answers = apply_load(load, self._senders, self._cores)
        memory, number = service.memory(), sum(answers.statuses.values())
        self._say(f"lensbox, after {number} more {name}: {memory / 2**20:.1f} MiB, {answers.statuses}")
        return memory

    def _measure_recovery(self) -> None:
        """Kill the engine's process under half of the saturated load, and ask until it answers again."""
        frontends = self._options.frontends
        if self._options.device == "cpu":
            frontends = frontends or 1  # by default there is no engine of its own
        with self._ours(frontends) as service:
            engines = [pid for pid in descendants(service.process) if _name(pid) == "lensbox-engine"]
            if not engines:
                self._report.notes.append("recovery: the service has one process")
                return
            found = self._add(f"lensbox, {CONNECTIONS} connections", self._load(service), service)
            load = replace(self._load(service), rate=max(1.0, found.rate / 2), seconds=3600.0)
            with _background(load, self._senders, self._cores):
                time.sleep(1)
                os.kill(engines[0], signal.SIGKILL)
                self._measured.recovery = self._until_answered(service)
        self._say(f"lensbox, answers {self._measured.recovery:.2f} s after its engine was killed")

    def _until_answered(self, service: Service) -> float:
        """Return the seconds from now to an answer; NaN after a minute without one."""
        request = urllib.request.Request(f"http://127.0.0.1:{service.port}/v1/detect", self._file)
        begun = time.perf_counter()
        while (now := time.perf_counter()) < begun + 60:
            with contextlib.suppress(urllib.error.URLError, OSError):
                urllib.request.urlopen(request, timeout=60).close()
                return time.perf_counter() - begun
            time.sleep(max(0.0, now + 0.01 - time.perf_counter()))
        return float("nan")

    def _measure_peers(self) -> None:
        if importlib.util.find_spec("litserve") is None:
            self._report.notes.append("LitServe is not installed")
            return
        body = self._written("json", json.dumps({"image": base64.b64encode(self._file).decode()}).encode())
        for peer in self._options.peers:
            try:
                with running(partial(self._litserve_command, peer), "/health") as service:
                    load = self._load(service, "/predict", body, ["Content-Type: application/json"])
                    row = self._add(str(peer), load, service)
                self._measured.peers.append(row)
                if not row.rate:
                    self._report.notes.append(f"{peer}: no answer with 200, but {row.answers.statuses}")
            except RuntimeError as error:
                self._report.notes.append(f"{peer}: {error}")

    def _litserve_command(self, peer: LitServe, port: int) -> list[str]:
        options = self._options
        threads = peer.threads or options.threads
        numbers = [str(number) for number in (port, peer.workers, peer.batch, threads)]
        module = "lensbox.bench.serve.litserve_peer"
        return [sys.executable, "-m", module, str(options.artifact), options.device, *numbers]

    def _load(
        self,
        service: Service,
        path: str = "/v1/detect",
        body: str | None = None,
        headers: list[str] | None = None,
    ) -> Load:
        """Return a closed loop of many connections."""
        seconds = self._options.seconds
        return Load(
            host="127.0.0.1",
            port=service.port,
            path=path,
            body=body or self._body,
            headers=headers or [],
            connections=CONNECTIONS,
            seconds=seconds,
            warm_seconds=min(2.0, seconds / 4),
        )

    def _add(
        self, name: str, load: Load, service: Service, images: int = 1, senders: int | None = None
    ) -> Loaded:
        cpu = service.cpu_seconds()
        answers = apply_load(load, senders or self._senders, self._cores)
        row = Loaded(name, answers, images, service.cpu_seconds() - cpu)
        self._show(row.cells())
        return row

    def _add_in_process(self, name: str, rate: float | None = None, p50: float | None = None) -> None:
        cells = ["" if rate is None else number(rate), "" if p50 is None else f"{1000 * p50:.2f}"]
        self._show([name, *cells, "", "", "", "", ""])

    def _show(self, cells: list[str]) -> None:
        """Say a line of the table of loads, and write the table."""
        self._loads.append(cells)
        named = [f"{cell} {name}" for name, cell in zip(LOAD_HEADER, cells, strict=True) if cell]
        self._say(", ".join(named))
        self._report.show(Table("Loads", LOAD_HEADER, self._loads), aloud=False)

    def _written(self, name: str, content: bytes) -> str:
        path = self._folder / name
        path.write_bytes(content)
        return str(path)


@contextlib.contextmanager
def _background(load: Load, senders: int, cores: list[int]) -> Iterator[None]:
    """Send a load until the end of the block. Its answers are not counted."""
    stopped = threading.Event()

    def go_on() -> None:
        while not stopped.is_set():
            apply_load(replace(load, seconds=1.0, warm_seconds=0.0), senders, cores)

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""
