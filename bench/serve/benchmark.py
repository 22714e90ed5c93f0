"""One run of `lensbox bench serve`: the service beside LitServe and the artifact in process, in turns."""

import base64
import io
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import torch

from lensbox.bench.measure import WrongAnswerError, describe_machine, markdown, number, say, spread
from lensbox.bench.serve.services import Load, ServerProgram, running
from lensbox.cli.timing import summarize
from lensbox.common.errors import LensboxError
from lensbox.common.machine import keep_freed_memory
from lensbox.runtime import Artifact, load_artifact
from lensbox.runtime.detect.detection_sets import Difference, Found, Limits
from lensbox.runtime.device import choose_device

HEADER = ("service", "images/s", "x", "p50, ms", "p99, ms", "CPU ms an image", "failed")
SETTINGS = tuple((workers, batch) for workers in (1, 8) for batch in (1, 8, 32))  # of LitServe
# A service may decode a JPEG file in another way than the artifact in process.
_LIMITS = Limits(boxes=2.0, scores=0.1, iou=0.1, extras={})
_TURNS = 3
_WARM_SECONDS = 1


def run_load_test(artifact: Path, device: str, connections: Sequence[int], seconds: int, quick: bool) -> None:
    """Run the loads and print a table for each number of connections.

    artifact: the file to serve. seconds: of each load. quick: without LitServe.
    Raises WrongAnswerError, UnavailableError if the service or wrk cannot be started, ArtifactError.
    """
    keep_freed_memory()
    torch.set_num_threads(1)
    say(describe_machine("litserve", "httptools"))
    detector = load_artifact(artifact, choose_device(device))
    detector.capture([1])
    photo = photo_of(detector)
    with tempfile.TemporaryDirectory() as folder:
        lensbox, *peers = _programs(
            Path(folder), photo, str(artifact), device, partial(require_same, detector, photo)
        )
        fastest = _fastest([] if quick or find_spec("litserve") is None else peers, connections, seconds)
        with running(lensbox) as load:
            for count in connections:
                with ExitStack() as stack:
                    loads = {lensbox.name: partial(load, count)}
                    if peer := fastest.get(count):
                        loads[peer.name] = partial(stack.enter_context(running(peer)), count)
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

    def found(boxes: Any, scores: Any) -> Found:
        boxes, scores = torch.as_tensor(boxes).view(-1, 4), torch.as_tensor(scores)
        return Found(boxes, scores, torch.zeros(len(boxes), dtype=torch.int64), False, {})

    expected, rows = artifact.detect_image(artifact.read_photo(photo)), answer["detections"]
    actual = found([row["box"] for row in rows], [row["score"] for row in rows])
    thresholds = artifact.metadata.score_threshold, artifact.metadata.iou_threshold
    difference = Difference()
    difference.add(found(expected.boxes, expected.scores), actual, thresholds, _LIMITS, "the answer")
    if difference.unexplained:
        raise WrongAnswerError("; ".join(difference.unexplained))


def _programs(
    folder: Path, photo: bytes, artifact: str, device: str, check: Callable[[Any], None]
) -> list[ServerProgram]:
    """Return the service, and LitServe in each setting."""
    raw, encoded = folder / "photo.jpg", folder / "photo.json"
    raw.write_bytes(photo)
    encoded.write_text(json.dumps({"image": base64.b64encode(photo).decode()}))
    options = ("--artifact", artifact, "--device", device, "--log-level", "error")
    serve = ("-m", "lensbox.cli", "serve", *options, "--port")
    programs = [ServerProgram("lensbox", serve, "/v1/detect", raw, "image/jpeg", check)]
    for workers, batch in SETTINGS:
        name = f"LitServe, {workers} workers, batches of {batch}"
        peer = ("-m", "lensbox.bench.serve.litserve_peer", artifact, device, str(workers), str(batch))
        programs.append(ServerProgram(name, peer, "/predict", encoded, "application/json", check))
    return programs


def _fastest(
    peers: Sequence[ServerProgram], connections: Sequence[int], seconds: int
) -> dict[int, ServerProgram]:
    """Load the peers; return the fastest one for each number of connections."""
    rates: dict[int, dict[ServerProgram, float]] = {count: {} for count in connections}
    for peer in peers:
        try:
            with running(peer) as load:
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
    turns = [[load(seconds) for load in loads.values()] for _ in range(_TURNS)]
    first = statistics.median(taken[0].rate for taken in turns)
    lines = []
    for name, taken in zip(loads, zip(*turns, strict=True), strict=True):
        rates, *times, failed = zip(*taken, strict=True)
        medians = [number(1000 * statistics.median(values)) for values in times]
        rate = summarize(rates)
        lines.append([name, spread(rate), number(rate.median / first), *medians, str(sum(failed))])
    return lines
