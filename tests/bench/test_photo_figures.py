"""The figures and tables of `lensbox bench photo`."""

import pytest
from photo_fixtures import EFFORT

from lensbox.bench.photo import benchmark, figures, photo_report
from lensbox.bench.photo.case import Case, Way, run_case
from lensbox.bench.photo.chains import LENSBOX, OPENCV, PILLOW, PREVIOUS
from lensbox.bench.photo.frame_cases import DEVICE_TIME
from lensbox.bench.photo.hostile.decode_time import DecodeTime
from lensbox.bench.photo.results import PhotoReport
from lensbox.bench.photo.runner import RunnerDifference
from lensbox.bench.photo.stream_case import STREAM
from lensbox.bench.photo.timings import Timing
from lensbox.bench.timing import Series, Summary


def timing(case: str, step: str, way: str, median: float, share: float | None = None) -> Timing:
    return Timing(case, step, way, Summary(median, median * 0.9, median * 1.1, 9), share)


def figure_values(report: PhotoReport) -> dict[str, list[str]]:
    return {line[0]: line[1:] for line in figures.figure_lines(report)}


def test_cpu_figures_are_computed_from_the_rows() -> None:
    large, full_hd, frame = "JPEG 4000 x 3000", "JPEG 1920 x 1080", "RGB frame 1920 x 1080"
    report = PhotoReport(
        [],
        "cpu",
        1,
        [
            timing(large, "to boxes", LENSBOX, 10.0),
            timing(large, "to boxes", PREVIOUS, 145.0),
            timing(large, "decode", PREVIOUS, 1.0),
            timing(full_hd, "to boxes", LENSBOX, 10.0),
            timing(full_hd, "to boxes", PREVIOUS, 26.0),
            timing(frame, "to canvas", LENSBOX, 10.0),
            timing(frame, "to canvas", PREVIOUS, 50.0),
            timing(frame, "to canvas", PILLOW, 25.0),
            timing(frame, "to canvas", OPENCV, 11.0),
        ],
        decode_times=[DecodeTime("one", 9, 0.5, "decoded"), DecodeTime("other", 9, 1.5, "decoded")],
        runner_differences=[RunnerDifference("photograph", 3, 3, 0.0, 0.0)],
    )
    values = figure_values(report)
    assert values["CPU, one thread, JPEG 4000 x 3000 to boxes: previous code / ours"] == [
        *("14.5", "≥ 8", "≥ 14", "aim reached")
    ]
    assert values["CPU, one thread, JPEG 1920 x 1080 to boxes: previous code / ours"] == [
        *("2.60", "≥ 2.5", "≥ 3.5", "reached")
    ]
    assert values["CPU, one thread, RGB frame 1920 x 1080 to canvas: previous code / ours"] == [
        *("5.00", "≥ 6", "≥ 12", "BELOW")
    ]
    assert values["... Pillow / ours"][-1] == "reached"
    assert values["... OpenCV, gray and INTER_AREA / ours"][-1] == "BELOW"
    assert values["longest CPU time that a file of 1 MB keeps a decoding thread, s: other"] == [
        *("1.50", "≤ 2", "≤ 1", "reached")
    ]
    assert values["boxes of the C++ runner and Python, difference in px"] == [
        *("0.000", "≤ 0", "≤ 0", "aim reached")
    ]
    assert sum(line[-1] == "not measured" for line in values.values()) == 4
    # Two threads are another measurement.
    report.threads = 2
    assert sum(line[-1] == "not measured" for line in figure_values(report).values()) == 9


def test_gpu_figures_are_computed_from_the_rows() -> None:
    frames, canvas = "64 RGB frames 1920 x 1080", "1 canvas"
    report = PhotoReport(
        [],
        "cuda",
        1,
        [
            timing(frames, "to canvas", LENSBOX, 200.0),
            timing(frames, "to canvas", PREVIOUS, 30_000.0),
            timing(frames, DEVICE_TIME, LENSBOX, 150.0, share=0.65),
            timing(canvas, "detect", "lensbox, plain calls", 1400.0),
            timing(canvas, "detect", "lensbox, captured", 500.0),
            timing("JPEG", STREAM, "lensbox, batches of 32", 250.0),
            timing("JPEG", STREAM, "lensbox, batches of 128", 200.0),
            timing("JPEG", STREAM, PREVIOUS, 1.0),
        ],
    )
    measured = [line for line in figures.figure_lines(report) if line[-1] != "not measured"]
    assert [line[1:] for line in measured] == [
        ["150", "≥ 100", "≥ 200", "reached"],
        ["65.0", "≥ 40", "≥ 70", "reached"],
        ["5,000", "≥ 3,000", "≥ 8,000", "reached"],
        ["2.80", "", "", ""],
    ]


def test_what_has_no_end_is_above_every_limit() -> None:
    report = PhotoReport(
        [],
        "cpu",
        1,
        decode_times=[DecodeTime("hangs", 9, None, "no answer"), DecodeTime("one", 9, 0.5, "decoded")],
        runner_differences=[RunnerDifference("photograph", 3, 2, None, None)],
    )
    values = figure_values(report)
    assert [line for line in values.values() if line[-1] == "ABOVE"] == [
        ["inf", "≤ 2", "≤ 1", "ABOVE"],
        ["inf", "≤ 0", "≤ 0", "ABOVE"],
    ]
    assert benchmark.own_defects(report)
    # The slowest comes first.
    assert [line[0] for line in photo_report.decode_table(report.decode_times)[1]] == ["hangs", "one"]


def test_a_share_is_of_the_bytes_of_the_step() -> None:
    series = Series(lambda: 100.0, 3)
    case = Case(
        "frames", [Way("to canvas", "a", lambda _: series, 5000), Way("to canvas", "b", lambda _: series)]
    )
    a, b = run_case(case, EFFORT, copy_bytes_per_second=1e8)
    assert a.share == pytest.approx(0.5)  # 5,000 bytes in 100 µs
    assert b.share is None


def test_ratios_are_taken_to_the_first_way_alone() -> None:
    timings = [
        timing("case", "to boxes", LENSBOX, 10.0),
        timing("case", "to boxes", PILLOW, 25.0),
        Timing("case", "decode", LENSBOX, note="failed: no"),
        timing("case", "decode", PILLOW, 5.0),
    ]
    header, lines = photo_report.case_table(timings)
    assert header == ["step: way", "µs", "x"]
    assert [(line[0], line[2]) for line in lines] == [
        ("to boxes: lensbox", "1.00"),
        ("to boxes: Pillow", "2.50"),
        ("decode: Pillow", ""),
    ]
