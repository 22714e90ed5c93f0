"""One run of `lensbox bench tiles`: mosaics of labelled photographs, found with tiles and one by one."""

import importlib.util
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from lensbox.bench.machine import cpu_threads
from lensbox.bench.report import Figure, Options, Report, Table
from lensbox.common.errors import InputError
from lensbox.runtime import Artifact, Detections, TileSpec, load_artifact
from lensbox.runtime.device import largest_batch, tile_batch
from lensbox.runtime.tiles import tile_windows
from lensbox.train.data.labels import read_labels
from lensbox.train.evaluation.average_precision import BANDS, SCORE_THRESHOLD, ImageDetections, ImageLabels
from lensbox.train.evaluation.average_precision import Evaluation as Matched
from lensbox.train.evaluation.evaluate import NMS_IOU, detect_all
from lensbox.train.evaluation.evaluation_set import load_evaluation_set

# Photographs of a mosaic: 4,096 x 2,304 pixels with canvases of 256 x 256.
COLUMNS, ROWS = 16, 9
WAYS = {"no tiles": None, "auto": TileSpec(), "auto, not the whole": TileSpec(whole=False)}
ROUNDS = 5


def run(options: Options, artifact_file: Path, data: Sequence[Path]) -> Report:
    """Score and time tiles. Raises ArtifactError, and InputError for less than a mosaic of photographs."""
    artifact = load_artifact(artifact_file, options.device)
    canvas = artifact.metadata.canvas
    photographs = load_evaluation_set(read_labels(data)[0], canvas=canvas)
    size = COLUMNS * ROWS
    count = len(photographs.canvases) // size * size
    if count == 0:
        raise InputError(f"--data must have at least {size} photographs, got {len(photographs.canvases)}")
    canvases, labels = photographs.canvases[:count], photographs.labels[:count]
    mosaics = [mosaic(canvases[start : start + size]) for start in range(0, count, size)]
    report = Report.start("tiles", options, ())
    with cpu_threads(options.threads), torch.inference_mode():
        alone = detect_all(artifact.detect, canvases, options.device, largest_batch(artifact.device))
        lines = [_scored("one by one", labels, alone)]
        for name, tiles in WAYS.items():
            cells = [
                found
                for pixels in mosaics
                for found in by_cell(
                    artifact.detect_image(pixels, SCORE_THRESHOLD, NMS_IOU, tiles),
                    canvas.width,
                    canvas.height,
                )
            ]
            lines.append(_scored(name, labels, cells))
        report.show(Table(f"Average precision, {count} photographs", ["way", *BANDS], lines))
        height, width = mosaics[0].shape[1:]
        views = len(tile_windows(width, height, canvas, TileSpec()))

        def tiled() -> object:
            return artifact.detect_image(mosaics[0], tiles="auto")

        times = _seconds([tiled, lambda: [artifact.detect(canvases[:1]) for _ in range(views)]])
        sahi = _sahi_seconds(artifact, mosaics[0], tiled)
        in_graph = None
        if artifact.device.type == "cuda":
            artifact.capture([tile_batch(artifact.device, canvas)])
            in_graph = 1e3 * statistics.median(tiled for (tiled,) in _seconds([tiled]))
    precision = {line[0]: float(line[1]) for line in lines}
    ratio = statistics.median(tiled / single for tiled, single in times)
    report.finish(
        [
            Figure("AP of tiles / one by one", precision["auto"] / precision["one by one"], 0.95, 0.98),
            Figure(f"time / (time of one canvas x {views})", ratio, 1.1, 1.02, at_most=True),
            Figure("ms of one mosaic", 1e3 * statistics.median(tiled for tiled, _ in times)),
            Figure("... with a CUDA graph", in_graph, 6, 3, at_most=True),
            Figure("SAHI's time / ours", sahi, 3, 10),
        ]
    )
    return report


def mosaic(canvases: Tensor) -> Tensor:
    """Return uint8 [C, ROWS * H, COLUMNS * W] from COLUMNS * ROWS canvases, uint8 [N, C, H, W]."""
    _, channels, height, width = canvases.shape
    grid = canvases.reshape(ROWS, COLUMNS, channels, height, width).permute(2, 0, 3, 1, 4)
    return grid.reshape(channels, ROWS * height, COLUMNS * width)


def by_cell(found: Detections, width: int, height: int) -> list[ImageDetections]:
    """Return the detections of a mosaic by the cell that holds their centre, in pixels of the cell."""
    boxes, scores = found.boxes.double().numpy(), found.scores.double().numpy()
    column = np.clip((boxes[:, 0] + boxes[:, 2]) / 2 // width, 0, COLUMNS - 1)
    row = np.clip((boxes[:, 1] + boxes[:, 3]) / 2 // height, 0, ROWS - 1)
    cells = []
    for cell in range(COLUMNS * ROWS):
        y, x = divmod(cell, COLUMNS)
        inside = (column == x) & (row == y)
        corner = np.array([x * width, y * height] * 2)
        cells.append(ImageDetections(boxes[inside] - corner, scores[inside]))
    return cells


def _scored(name: str, labels: Sequence[ImageLabels], found: Sequence[ImageDetections]) -> list[str]:
    return [name, *(f"{value:.4f}" for value in Matched(labels, found).table().values())]


def _sahi_seconds(artifact: Artifact, pixels: Tensor, tiled: Callable[[], object]) -> float | None:
    """Return SAHI's time with the faster size of batches, divided by ours; None if it is not installed."""
    if importlib.util.find_spec("sahi") is None:
        return None
    from lensbox.bench.tiles.sahi_peer import sahi_detect

    batches = (1, largest_batch(artifact.device))
    rounds = _seconds([tiled, *(partial(sahi_detect, artifact, pixels, batch) for batch in batches)])
    return statistics.median(min(sahi) / ours for ours, *sahi in rounds)


def _seconds(calls: Sequence[Callable[[], object]]) -> list[list[float]]:
    """Return rounds of the calls' CPU times, or of wall times with a GPU. The calls take turns."""
    clock = time.perf_counter if torch.cuda.is_available() else time.process_time
    rounds = []
    for _ in range(ROUNDS + 1):
        times = []
        for call in calls:
            start = clock()
            call()
            times.append(clock() - start)
        rounds.append(times)
    return rounds[1:]  # the first round warms up
