"""One run of `lensbox bench serve`."""

import base64
import importlib.util
import io
import json
import sys
import tempfile
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import PIL.Image

from lensbox.artifact.metadata import Canvas
from lensbox.bench.report import Options, Report, Table, number
from lensbox.bench.serve.answers import LOAD_HEADER, Loaded, Measured, Pair, figures
from lensbox.bench.serve.in_process import InProcess
from lensbox.bench.serve.load import Load
from lensbox.bench.serve.services import Service, apply_load, load_cores, running, without
from lensbox.common.decode import Decode

CONNECTIONS = 64
CANVASES = 32  # in a request of the Open Inference Protocol, over a quarter of the connections
LITSERVES = tuple((workers, batch) for workers in (1, 8) for batch in (1, 8, 32))
_TURNS = 3
_OVERLOAD_SECONDS = 60.0
_OVERLOAD_CONNECTIONS = 800  # fewer than the service keeps open: each front end has a share of those
_DEADLINE_MS = 2000
_FIRST_PHOTOGRAPHS = 1000  # before the memory is looked at for the first time
_MORE_PHOTOGRAPHS = {"cpu": 10_000, "cuda": 100_000}


class Plan(NamedTuple):
    """The rows to measure, and how.

    artifact: the file that is served, of any format. rows: of `SERVE_ROWS`. seconds: of each load but the
    overload. decode: the service's and `detect_files`' option for JPEG files.
    """

    artifact: Path
    rows: tuple[str, ...]
    seconds: float
    decode: Decode = "auto"


def run(options: Options, plan: Plan) -> Report:
    """Measure, say and write each load when it is there, and the figures at the end."""
    report = Report.start("serve", options, ("litserve", "uvicorn", "httptools"))
    cores = load_cores()
    if cores:
        options.say(f"{len(cores)} cores are kept for the senders, all other cores for the services")
    with tempfile.TemporaryDirectory() as folder, without(cores):
        measured = _Run(options, plan, Path(folder), cores, report).measured()
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
    def __init__(self, options: Options, plan: Plan, folder: Path, cores: list[int], report: Report) -> None:
        self._options, self._plan, self._folder, self._cores = options, plan, folder, cores
        self._report = report
        self._measured = Measured()
        self._loads: list[list[str]] = []
        self._file = made_up_jpeg()
        self._body = self._written("photograph", self._file)

    def measured(self) -> Measured:
        """Run the requested rows, and those that they are divided by."""
        rows = set(self._plan.rows)
        artifact, options = str(self._plan.artifact), self._options
        decode = self._plan.decode
        in_process = InProcess(artifact, options.device, options.threads, self._file, decode)
        command = [sys.executable, "-m", "lensbox.common", "serve", "--artifact", artifact]
        command += ["--device", options.device, "--log-level", "error", "--threads", str(options.threads)]
        command += ["--decode", decode]
        with running([*command, "--port"], "/readyz") as service:
            if {"throughput", "overload", "litserve"} & rows:
                self._measure_throughput(service, in_process)
            if "latency" in rows:
                self._measure_latency(service, in_process)
            if "canvases" in rows:
                self._measure_canvases(service, in_process)
            if "overload" in rows:
                self._measure_overload(service)
            if "memory" in rows:
                self._measure_memory(service)
        if "litserve" in rows:
            self._measure_litserve()
        return self._measured

    def _measure_throughput(self, service: Service, in_process: InProcess) -> None:
        pair = Pair()
        rows = []
        with_pair = "throughput" in self._plan.rows
        best = in_process.best_batch(self._plan.seconds / 4, self._options.say) if with_pair else 0
        for _ in range(_TURNS):
            rows.append(self._add(f"lensbox, {CONNECTIONS} connections", self._load(service), service))
            if with_pair:
                pair.add(rows[-1].rate, in_process.file_rate(best, self._plan.seconds / 2))
                self._add_in_process("in process, files", rate=pair.in_process[-1])
        self._measured.saturated = sorted(rows, key=lambda row: row.rate)[len(rows) // 2]
        self._measured.throughput = pair if with_pair else None

    def _measure_latency(self, service: Service, in_process: InProcess) -> None:
        self._measured.latency = pair = Pair()
        load = replace(self._load(service), connections=1)
        for _ in range(_TURNS):
            row = self._add("lensbox, 1 connection", load, service)
            pair.add(row.percentile(0.5), in_process.photo_seconds(self._plan.seconds / 2))
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
            pair.add(row.rate, in_process.canvas_rate(self._plan.seconds / 4))
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
            connections=_OVERLOAD_CONNECTIONS,
            seconds=self._plan.seconds if self._options.quick else _OVERLOAD_SECONDS,
        )
        self._measured.overloaded = row = self._add(f"lensbox, open loop, {rate:.0f}/s", load, service)
        statuses = row.answers.statuses
        if unsent := statuses.get("unsent", 0):
            share = unsent / sum(statuses.values())
            self._report.notes.append(f"overload: {share:.0%} of the requests could not be sent in time")
        self._measured.deadline = _DEADLINE_MS / 1000

    def _measure_memory(self, service: Service) -> None:
        sizes = []
        for count in (_FIRST_PHOTOGRAPHS, _MORE_PHOTOGRAPHS[self._options.device]):
            load = replace(self._load(service), seconds=3600.0, warm_seconds=0.0, most=count)
            answers = apply_load(load, self._cores)
            sizes.append(service.memory())
            size = f"{sizes[-1] / 2**20:.1f} MiB"
            self._options.say(f"lensbox, after {count} more photographs: {size}, {answers.statuses}")
        self._measured.memory = sizes[1] / sizes[0]

    def _measure_litserve(self) -> None:
        if importlib.util.find_spec("litserve") is None:
            self._report.notes.append("LitServe is not installed")
            return
        body = self._written("json", json.dumps({"image": base64.b64encode(self._file).decode()}).encode())
        module = "lensbox.bench.serve.litserve_peer"
        command = [sys.executable, "-m", module, str(self._plan.artifact), self._options.device]
        for workers, batch in LITSERVES:
            name = f"LitServe, {workers} workers, batch {batch}"
            numbers = [str(number) for number in (workers, batch, self._options.threads)]
            try:
                with running([*command, *numbers], "/health") as peer:
                    load = self._load(peer, "/predict", body, ["Content-Type: application/json"])
                    self._measured.litserve.append(self._add(name, load, peer))
            except RuntimeError as error:
                self._report.notes.append(f"{name}: {error}")

    def _load(
        self, service: Service, path: str = "/v1/detect", body: str = "", headers: list[str] | None = None
    ) -> Load:
        """Return a closed loop of many connections."""
        return Load(
            host="127.0.0.1",
            port=service.port,
            path=path,
            body=body or self._body,
            headers=headers or [],
            connections=CONNECTIONS,
            seconds=self._plan.seconds,
            warm_seconds=min(2.0, self._plan.seconds / 4),
        )

    def _add(self, name: str, load: Load, service: Service, images: int = 1) -> Loaded:
        cpu = service.cpu_seconds()
        answers = apply_load(load, self._cores)
        row = Loaded(name, answers, images, service.cpu_seconds() - cpu)
        self._show(row.cells())
        return row

    def _add_in_process(self, name: str, rate: float | None = None, p50: float | None = None) -> None:
        cells = ["" if rate is None else number(rate), "" if p50 is None else f"{1000 * p50:.2f}"]
        self._show([name, *cells, "", "", "", ""])

    def _show(self, cells: list[str]) -> None:
        """Say a line of the table of loads, and write the table."""
        self._loads.append(cells)
        self._options.say(
            ", ".join(f"{cell} {name}" for name, cell in zip(LOAD_HEADER, cells, strict=True) if cell)
        )
        self._report.show(Table("Loads", LOAD_HEADER, self._loads), aloud=False)

    def _written(self, name: str, content: bytes) -> str:
        path = self._folder / name
        path.write_bytes(content)
        return str(path)
