"""The figures that the way from a photograph to boxes is held to."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from lensbox.bench.limits import NOT_MEASURED, Limit
from lensbox.bench.photo.cases import FRAMES, FULL_HD, LARGE
from lensbox.bench.photo.chains import LENSBOX, OPENCV, PILLOW, PREVIOUS
from lensbox.bench.photo.file_cases import TO_BOXES
from lensbox.bench.photo.frame_cases import CALL, DEVICE_TIME
from lensbox.bench.photo.graph_case import CAPTURED, DETECT, PLAIN
from lensbox.bench.photo.hostile.decode_time import slowest_first
from lensbox.bench.photo.results import PhotoReport
from lensbox.bench.photo.stream_case import STREAM
from lensbox.bench.table import number
from lensbox.bench.timing import MICROSECONDS


@dataclass(frozen=True)
class Figure:
    """limit: None where it is only shown. value: None where it was not measured. of: what had that value."""

    name: str
    limit: Limit | None
    value: Callable[[PhotoReport], float | None]
    of: Callable[[PhotoReport], str] | None = None


def _ratio(
    case: str, step: str, peer: str, ours: str = LENSBOX, device: str = "cpu"
) -> Callable[[PhotoReport], float | None]:
    """The peer's time over ours; on the CPU with one thread."""

    def value(report: PhotoReport) -> float | None:
        if report.device != device or (device == "cpu" and report.threads != 1):
            return None
        theirs, own = report.median(case, step, peer), report.median(case, step, ours)
        return None if theirs is None or own is None else theirs / own

    return value


def _share(report: PhotoReport) -> float | None:
    timing = report.timing(_BATCH, DEVICE_TIME, LENSBOX)
    return None if timing is None or timing.share is None else 100 * timing.share


def _photographs_a_second(report: PhotoReport) -> float | None:
    if report.device != "cuda":
        return None
    times = [
        timing.summary.median
        for timing in report.timings
        if timing.step == STREAM and timing.way.startswith(LENSBOX) and timing.summary is not None
    ]
    return MICROSECONDS / min(times) if times else None


def _longest_decoding(report: PhotoReport) -> float | None:
    """Seconds; without end where no answer came."""
    return slowest_first(report.decode_times)[0].bound if report.decode_times else None


def _longest_decoded(report: PhotoReport) -> str:
    return slowest_first(report.decode_times)[0].name if report.decode_times else ""


def _runner_difference(report: PhotoReport) -> float | None:
    """Pixels; without end where the numbers of faces differ."""
    differences = [
        math.inf if difference.boxes is None else difference.boxes for difference in report.runner_differences
    ]
    return max(differences, default=None)


def _jpeg(size: tuple[int, int]) -> str:
    return "JPEG {} x {}".format(*size)


_FRAME = "RGB frame {} x {}".format(*FULL_HD)
_BATCH = "{} RGB frames {} x {}".format(FRAMES, *FULL_HD)

FIGURES = [
    Figure(
        "CPU, one thread, JPEG 4000 x 3000 to boxes: previous code / ours",
        Limit(8, 14),
        _ratio(_jpeg(LARGE), TO_BOXES, PREVIOUS),
    ),
    Figure(
        "CPU, one thread, JPEG 1920 x 1080 to boxes: previous code / ours",
        Limit(2.5, 3.5),
        _ratio(_jpeg(FULL_HD), TO_BOXES, PREVIOUS),
    ),
    Figure(
        "CPU, one thread, RGB frame 1920 x 1080 to canvas: previous code / ours",
        Limit(6, 12),
        _ratio(_FRAME, CALL, PREVIOUS),
    ),
    Figure("... Pillow / ours", Limit(2.5, 5), _ratio(_FRAME, CALL, PILLOW)),
    Figure("... OpenCV, gray and INTER_AREA / ours", Limit(1.2, 2.5), _ratio(_FRAME, CALL, OPENCV)),
    Figure(
        "GPU, 64 RGB frames 1920 x 1080 to canvases: previous code's loop / ours",
        Limit(100, 200),
        _ratio(_BATCH, CALL, PREVIOUS, device="cuda"),
    ),
    Figure("... share of a copy's bandwidth, %", Limit(40, 70), _share),
    Figure("GPU, JPEG 512 x 512 from memory to boxes, a second", Limit(3000, 8000), _photographs_a_second),
    Figure(
        "GPU, detect of one canvas: plain calls / captured graph",
        None,
        _ratio("1 canvas", DETECT, PLAIN, CAPTURED, "cuda"),
    ),
    Figure(
        "longest CPU time that a file of 1 MB keeps a decoding thread, s",
        Limit(2, 1, at_most=True),
        _longest_decoding,
        _longest_decoded,
    ),
    Figure(
        "boxes of the C++ runner and Python, difference in px", Limit(0, 0, at_most=True), _runner_difference
    ),
]

HEADER = ["figure", "value", "must", "aim", ""]


def figure_lines(report: PhotoReport) -> list[list[str]]:
    """A line for each figure, beneath HEADER."""
    return [_line(figure, report) for figure in FIGURES]


def _line(figure: Figure, report: PhotoReport) -> list[str]:
    value = figure.value(report)
    name, shown = figure.name, "" if value is None else number(value)
    if figure.of is not None and value is not None:
        name += f": {figure.of(report)}"
    if figure.limit is None:
        return [name, shown, "", "", NOT_MEASURED if value is None else ""]
    sign = "≤" if figure.limit.at_most else "≥"
    must, aim = (f"{sign} {cell}" for cell in figure.limit.cells)
    return [name, shown, must, aim, figure.limit.verdict(value)]
