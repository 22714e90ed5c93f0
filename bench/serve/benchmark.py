"""One run of `lensbox bench serve`: the service beside LitServe and the artifact in process, in turns."""

import base64
import importlib.util
import io
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import PIL.Image
import torch

from lensbox.bench.measure import Table, WrongAnswerError, describe_machine, number, spread
from lensbox.bench.serve.services import Load, PeerError, ServerProgram, running
from lensbox.cli.timing import summarize
from lensbox.common.machine import keep_freed_memory
from lensbox.runtime import Artifact, load_artifact

LENSBOX, LITSERVE = "lensbox", "LitServe"
HEADER = ("service", "images/s", "x", "p50, ms", "p99, ms", "CPU ms an image", "failed")
SETTINGS = tuple((workers, batch) for workers in (1, 8) for batch in (1, 8, 32))  # of LitServe
_TURNS = 3
_WARM_SECONDS = 1
_CLEAR = 0.1  # above the threshold: such detections do not come or go by rounding
_NEAR = 2.0  # pixels

Say = Callable[[str], None]


class LoadTest(NamedTuple):
    """The loads to run.

    artifact: the file to serve, of any format. device: "cpu" or "cuda". threads: of each engine. connections:
    a table for each number. seconds: of each load. with_litserve: whether LitServe is measured, too.
    """

    artifact: Path
    device: str
    threads: int
    connections: Sequence[int]
    seconds: int
    with_litserve: bool = True


def run_load_test(test: LoadTest, say: Say) -> bool:
    """Run the loads and print each table with `say`. Return whether every answer of Lensbox was right.

    Raises PeerError if the service or wrk cannot be started, ArtifactError.
    """
    keep_freed_memory()
    torch.set_num_threads(test.threads)
    say(describe_machine(test.device, ("litserve", "uvicorn", "httptools")))
    artifact = load_artifact(test.artifact, test.device)
    artifact.capture([1])
    photo = photo_of(artifact)
    with tempfile.TemporaryDirectory() as folder:
        lensbox, *others = _peers(test, Path(folder), photo)
        if test.with_litserve and not others:
            say("LitServe is not installed: pip install litserve")
        best = _best(test, others, artifact, photo, say)
        with running(lensbox) as service:
            try:
                require_same(LENSBOX, service.ask(), artifact, photo)
            except WrongAnswerError as error:
                say(f"WRONG: {error}")
                return False
            for connections in test.connections:
                with ExitStack() as stack:
                    loads = {LENSBOX: partial(service.load, connections)}
                    if (peer := best.get(connections)) is not None:
                        loads[peer.name] = partial(stack.enter_context(running(peer)).load, connections)
                    if connections == 1:
                        loads["in process"] = partial(_in_process, artifact, photo)
                    lines = _lines(loads, test.seconds)
                size = f"JPEG of 512 x 512, {len(photo) / 1000:.0f} kB"
                title = f"{connections} connection{'s' if connections > 1 else ''}, {size}, {test.device}"
                say(Table(title, HEADER, lines).markdown())
    return True


def photo_of(artifact: Artifact) -> bytes:
    """Return a JPEG file of 512 x 512 pixels, about 90 kB: the picture of the self-test, with noise."""
    channels = artifact.metadata.self_test.image.expand(3, -1, -1)
    picture = PIL.Image.fromarray(channels.permute(1, 2, 0).numpy()).resize((512, 512))
    noisy = np.asarray(picture) + np.random.default_rng(0).normal(0, 6, (512, 512, 1))
    file = io.BytesIO()
    PIL.Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(file, "JPEG", quality=90)
    return file.getvalue()


def require_same(name: str, answer: Any, artifact: Artifact, photo: bytes) -> None:
    """Raise WrongAnswerError if an answer, as of /v1/detect, differs from the artifact in process."""
    expected = artifact.detect_image(artifact.read_photo(photo))
    boxes = torch.tensor([one["box"] for one in answer["detections"]]).view(-1, 4)
    scores = torch.tensor([one["score"] for one in answer["detections"]])
    least = artifact.metadata.score_threshold + _CLEAR
    for found, others in (((boxes, scores), expected.boxes), ((expected.boxes, expected.scores), boxes)):
        for box in found[0][found[1] >= least]:
            if not bool(((others - box).abs().amax(-1) <= _NEAR).any()):
                at = ", ".join(f"{value:.0f}" for value in box.tolist())
                raise WrongAnswerError(f"{name} and the artifact in process disagree about a box at ({at})")


def _peers(test: LoadTest, folder: Path, photo: bytes) -> list[ServerProgram]:
    """Return the service, and LitServe in each setting if it is asked for and installed."""
    raw, encoded = folder / "photo.jpg", folder / "photo.json"
    raw.write_bytes(photo)
    encoded.write_text(json.dumps({"image": base64.b64encode(photo).decode()}))
    command = [sys.executable, "-m", "lensbox.cli", "serve", "--artifact", str(test.artifact)]
    command += ["--device", test.device, "--log-level", "error", "--threads", str(test.threads), "--port"]
    peers = [ServerProgram(LENSBOX, command, "/readyz", "/v1/detect", raw, "image/jpeg")]
    if test.with_litserve and importlib.util.find_spec("litserve") is not None:
        program = [sys.executable, "-m", "lensbox.bench.serve.litserve_peer", str(test.artifact), test.device]
        for workers, batch in SETTINGS:
            name = f"{LITSERVE}, {workers} workers, batches of {batch}"
            command = [*program, str(workers), str(batch), str(test.threads)]
            peers.append(ServerProgram(name, command, "/health", "/predict", encoded, "application/json"))
    return peers


def _best(
    test: LoadTest, peers: Sequence[ServerProgram], artifact: Artifact, photo: bytes, say: Say
) -> dict[int, ServerProgram]:
    """Check and load the peers; return the fastest one for each number of connections."""
    best: dict[int, tuple[float, ServerProgram]] = {}
    for peer in peers:
        try:
            with running(peer) as service:
                require_same(LITSERVE, service.ask(), artifact, photo)
                for connections in test.connections:
                    rate = service.load(connections, test.seconds).rate
                    say(f"{peer.name}, {connections} connections: {number(rate)} images/s")
                    best[connections] = max(best.get(connections, (0.0, peer)), (rate, peer))
        except (PeerError, WrongAnswerError, OSError) as error:
            say(f"{peer.name}: {error}")
    return {connections: peer for connections, (_, peer) in best.items()}


def _in_process(artifact: Artifact, photo: bytes, seconds: int) -> Load:
    """Detect in one photograph after another, from its file to its boxes."""
    taken: list[float] = []
    began, cpu = time.perf_counter(), time.process_time()
    while not taken or time.perf_counter() < began + seconds:
        start = time.perf_counter()
        artifact.detect_image(artifact.read_photo(photo))
        taken.append(time.perf_counter() - start)
    cpu = (time.process_time() - cpu) / len(taken)
    p50, p99 = np.quantile(taken, [0.5, 0.99])
    return Load(len(taken) / (time.perf_counter() - began), float(p50), float(p99), cpu)


def _lines(loads: Mapping[str, Callable[[int], Load]], seconds: int) -> list[list[str]]:
    """Run the loads in turns; return a line for each, with medians over the turns. Lensbox comes first."""
    for load in loads.values():
        load(_WARM_SECONDS)
    taken: dict[str, list[Load]] = {name: [] for name in loads}
    for _ in range(_TURNS):
        for name, load in loads.items():
            taken[name].append(load(seconds))
    first = statistics.median(load.rate for load in taken[LENSBOX])
    lines = []
    for name, turns in taken.items():
        rates = summarize([load.rate for load in turns])
        times = [
            number(1000 * statistics.median(values))
            for values in zip(*((load.p50, load.p99, load.cpu) for load in turns), strict=True)
        ]
        failed = str(sum(load.failed for load in turns))
        lines.append([name, spread(rates), number(rates.median / first), *times, failed])
    return lines
