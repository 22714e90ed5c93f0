"""What a run of `lensbox bench detector` says: text for the terminal, detector.md for the docs."""

from collections.abc import Callable, Sequence

from lensbox.bench.detector.operators import KINDS, Share
from lensbox.bench.detector.results import Breakdown, DetectorReport
from lensbox.bench.detector.ways import (
    ONNX_DETECT,
    ONNXRUNTIME_NETWORK,
    TORCHSCRIPT_DETECT,
    TORCHSCRIPT_NETWORK,
    YUNET,
)
from lensbox.bench.limits import NOT_MEASURED, Limit
from lensbox.bench.ops_report import environment_markdown, environment_text
from lensbox.bench.table import format_markdown, format_text, number, spread

DETECTOR = "face detector"
YUNET_N = "YuNet-n"
MOST_MEGA_MACS = 160.0
MOST_TIMES_YUNET = 4.0
MOST_TIMES_NETWORK = 1.05

Table = tuple[Sequence[str], Sequence[Sequence[str]]]
Format = Callable[[Sequence[str], Sequence[Sequence[str]]], str]


def text(report: DetectorReport) -> str:
    """The whole run, for the terminal."""
    parts = [environment_text(report.environment), *_sections(report, format_text, "{}")]
    return "\n\n".join(parts + [f"Note: {note}" for note in report.notes])


def markdown(report: DetectorReport) -> str:
    """The whole run, to be pasted into documentation."""
    parts = [environment_markdown(report.environment), *_sections(report, format_markdown, "## {}\n")]
    parts += ["## Not run", "\n".join(f"- {note}" for note in report.notes)] if report.notes else []
    return "\n\n".join(parts) + "\n"


def _sections(report: DetectorReport, table: Format, heading: str) -> list[str]:
    one = report.threads == 1
    what = "one image" if report.batch == 1 else f"{report.batch} images in a batch"
    timed = f"CPU time of {what}, 1 thread" if one else f"Time of {what}, {report.threads} threads"
    parts = [
        f"{heading.format('Networks, one image of 256x256')}\n{table(*cost_table(report))}",
        f"{heading.format(timed)}\n{table(*timing_table(report))}",
    ]
    parts += [f"- {timing.way}: {timing.note}" for timing in report.timings if timing.note]
    parts.append(f"{heading.format('Figures')}\n{table(*figure_table(report))}")
    if report.breakdown is not None:
        title = "Where the time goes: TorchScript detect and onnxruntime's network, profiled"
        parts.append(f"{heading.format(title)}\n{table(*breakdown_table(report.breakdown))}")
        parts += _reorders_text(report.breakdown.reorders)
    return parts


def cost_table(report: DetectorReport) -> Table:
    lines = [
        [name, f"{cost.parameters:,}", f"{cost.multiply_accumulates / 1e6:.1f}"]
        for name, cost in report.costs.items()
    ]
    return ["network", "parameters", "million multiply-accumulates"], lines


def timing_table(report: DetectorReport) -> Table:
    """Median and percentiles, and each median as times of the artifact's and of the yardstick's."""
    ours, yardstick = report.median(TORCHSCRIPT_DETECT), report.median(YUNET)
    lines = [
        [
            timing.way,
            spread(timing.summary),
            _times(timing.summary.median, ours),
            _times(timing.summary.median, yardstick),
        ]
        for timing in report.timings
        if timing.summary is not None
    ]
    return ["way", "µs", "x the artifact", "x YuNet-n"], lines


def figure_table(report: DetectorReport) -> Table:
    """What the detector is held to, and the ratio of the two runtimes on the same network."""
    mega_macs = report.costs[DETECTOR].multiply_accumulates / 1e6
    same_network = _ratio(report.median(TORCHSCRIPT_NETWORK), report.median(ONNXRUNTIME_NETWORK))
    figures = (
        ("million multiply-accumulates", mega_macs, MOST_MEGA_MACS),
        (
            "TorchScript detect / YuNet-n in onnxruntime",
            _ratio(report.median(TORCHSCRIPT_DETECT), report.median(YUNET)),
            MOST_TIMES_YUNET,
        ),
        ("TorchScript / onnxruntime, the same network", same_network, None),
        (
            "ONNX file detect / its network alone, both in onnxruntime",
            _ratio(report.median(ONNX_DETECT), report.median(ONNXRUNTIME_NETWORK)),
            MOST_TIMES_NETWORK,
        ),
    )
    return ["figure", "value", "at most", ""], [_figure_line(*figure) for figure in figures]


def _figure_line(name: str, value: float | None, at_most: float | None) -> list[str]:
    shown = "" if value is None else number(value)
    if at_most is None:
        return [name, shown, "", NOT_MEASURED if value is None else ""]
    return [name, shown, f"{at_most:g}", Limit(at_most, at_most=True).verdict(value)]


def breakdown_table(breakdown: Breakdown) -> Table:
    """Microseconds and, in brackets, number of operators; the difference between the runtimes; their sums."""
    none = Share(0, 0.0)
    lines, sums = [], [0.0, 0.0]
    for kind in KINDS:
        shares = [times.get(kind, none) for times in (breakdown.torchscript, breakdown.onnxruntime)]
        if shares == [none, none]:
            continue
        difference = shares[0].microseconds - shares[1].microseconds
        lines.append([kind, *map(_share, shares), f"{difference:+,.0f}"])
        sums = [total + share.microseconds for total, share in zip(sums, shares, strict=True)]
    lines.append(["sum", *(f"{total:,.0f}" for total in sums), f"{sums[0] - sums[1]:+,.0f}"])
    return ["kind (operators)", "TorchScript, µs", "onnxruntime, µs", "difference, µs"], lines


def _share(share: Share) -> str:
    if not share.operators:
        return f"{share.microseconds:,.0f}" if share.microseconds else ""
    return f"{share.microseconds:,.0f} ({share.operators})"


def _reorders_text(reorders: Share | None) -> list[str]:
    if reorders is None:
        return []
    return [
        f"Of TorchScript's convolutions, {reorders.microseconds:,.0f} µs are {reorders.operators} reorders "
        "into oneDNN's layouts."
    ]


def _ratio(value: float | None, base: float | None) -> float | None:
    return None if value is None or base is None else value / base


def _times(value: float, base: float | None) -> str:
    ratio = _ratio(value, base)
    return "" if ratio is None else number(ratio)
