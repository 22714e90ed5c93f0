"""PNG plots of the results. matplotlib is imported when one is drawn."""

import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lensbox.bench.cases import HEADLINE_BATCH, HEADLINE_SLOTS, Case
from lensbox.bench.exercise import Point, predicted_gain
from lensbox.bench.peers.registry import LENSBOX, LENSBOX_JAGGED
from lensbox.bench.results import Measure, Row
from lensbox.bench.table import number
from lensbox.common.files import atomic_write

OURS_COLOR = "#c8102e"
COLORS = ("#1f4e79", "#7a9e3f", "#8064a2", "#d9822b", "#4bacc6", "#7f7f7f")
MARKERS = ("s", "^", "D", "v", "P", "X")
TIME_LABEL = "µs a call"


def write_plots(folder: Path, rows: Sequence[Row], points: Sequence[Point]) -> list[Path]:
    """Writes each plot that there are results for, and returns the files.

    Raises:
        ModuleNotFoundError: matplotlib is not installed.
    """
    import matplotlib

    matplotlib.use("Agg")  # no display needed
    written = []
    if any(row.case.group == "headline" and row.summary for row in rows):
        written.append(_headline(folder / "headline.png", rows))
    if any(row.case.group == "sizes" and row.summary for row in rows):
        written.append(_sizes(folder / "sizes.png", rows))
    if points:
        written.append(_exercise(folder / "exercise.png", points))
    return written


def _headline(path: Path, rows: Sequence[Row]) -> Path:
    """Bars: a panel for each direction, a pair of bars for each peer."""
    from matplotlib import pyplot

    rows = [row for row in rows if row.case.group == "headline" and row.summary]
    cases = list(dict.fromkeys(row.case for row in rows))
    most = max(len({row.peer for row in rows if row.case == case}) for case in cases)
    fastest = min(row.summary.median for row in rows if row.summary)
    figure, axes = pyplot.subplots(
        1,
        len(cases),
        figsize=(6.2 * len(cases), 1.6 + 0.5 * most),
        squeeze=False,
        sharex=True,
        layout="constrained",
    )
    for axis, case in zip(axes[0], cases, strict=True):
        peers = list(dict.fromkeys(row.peer for row in rows if row.case == case))
        measures: list[Measure] = [m for m in ("call", "graph") if any(r.measure == m for r in rows)]
        height = 0.8 / len(measures)
        for place, measure in enumerate(measures):
            for line, peer in enumerate(peers):
                row = _row(rows, case, peer, measure)
                if row is None or row.summary is None:
                    continue
                color = OURS_COLOR if peer in (LENSBOX, LENSBOX_JAGGED) else COLORS[0]
                at = line + (place - (len(measures) - 1) / 2) * height
                median = row.summary.median
                axis.barh(at, median, height * 0.92, color=color, alpha=1.0 if place == 0 else 0.55)
                axis.text(median * 1.06, at, number(median), va="center", fontsize=8)
        axis.set_xscale("log")
        axis.margins(x=0.18)
        axis.set_xlim(left=10 ** math.floor(math.log10(fastest) - 0.3))
        axis.set_yticks(range(len(peers)), peers)
        axis.invert_yaxis()
        axis.set_title(case.direction)
        axis.set_xlabel(
            f"{TIME_LABEL} (log)" + ("; dark: host call, light: CUDA graph" if measures[1:] else "")
        )
        axis.spines[["top", "right"]].set_visible(False)
    figure.suptitle(f"Masked GIoU loss, {cases[0].batch} samples of {cases[0].slots} slots")
    save_figure(figure, path)
    return path


def _sizes(path: Path, rows: Sequence[Row]) -> Path:
    """Lines: time against batch, slots and fill, one line a peer; a row of panels for each direction."""
    from matplotlib import pyplot

    rows = [row for row in rows if row.summary and row.case.kind == "loss"]
    # The headline case is a point of two of the three sweeps.
    swept = [row for row in rows if row.case.group == "sizes"]
    peers = list(dict.fromkeys(row.peer for row in swept))
    rows = [row for row in rows if row.peer in peers]
    measure: Measure = "graph" if any(row.measure == "graph" for row in swept) else "call"
    directions = list(dict.fromkeys(row.case.direction for row in rows))
    figure, axes = pyplot.subplots(
        len(directions), 3, figsize=(13, 3.8 * len(directions)), squeeze=False, layout="constrained"
    )
    panels = (("samples", "batch"), ("slots a sample", "slots"), ("share of valid slots", "fill"))
    for line, direction in enumerate(directions):
        for column, (label, variable) in enumerate(panels):
            axis = axes[line][column]
            for place, peer in enumerate(peers):
                line_points = sorted(
                    (float(getattr(row.case, variable)), row.summary.median)
                    for row in rows
                    if row.summary
                    and (row.case.direction, row.peer, row.measure) == (direction, peer, measure)
                    and _in_panel(row.case, variable)
                )
                if not line_points:
                    continue
                ours = peer == LENSBOX
                axis.plot(
                    *zip(*line_points, strict=True),
                    label=peer,
                    color=OURS_COLOR if ours else COLORS[place % len(COLORS)],
                    marker="o" if ours else MARKERS[place % len(MARKERS)],
                    linewidth=2 if ours else 1.2,
                )
            axis.set_xscale("log")
            axis.set_yscale("log")
            axis.set_xlabel(label)
            axis.set_ylabel(f"{direction}: {TIME_LABEL}")
            axis.grid(alpha=0.3)
    names = axes[0][0].get_legend_handles_labels()
    figure.legend(*names, loc="outside lower center", ncols=len(peers))  # inside it would hide points
    words = "CUDA graph" if measure == "graph" else "host call"
    figure.suptitle(f"Masked GIoU loss around {HEADLINE_BATCH} samples of {HEADLINE_SLOTS} slots ({words})")
    save_figure(figure, path)
    return path


def _in_panel(case: Case, variable: str) -> bool:
    """Whether a case differs from the headline case in `variable` at most."""
    if variable == "fill":
        return case.fill is not None and (case.batch, case.slots) == (HEADLINE_BATCH, HEADLINE_SLOTS)
    if case.fill is not None:
        return False
    return case.slots == HEADLINE_SLOTS if variable == "batch" else case.batch == HEADLINE_BATCH


def _exercise(path: Path, points: Sequence[Point]) -> Path:
    """Lines: time of both kernels, and the gain, against n; a column for each fill."""
    from matplotlib import pyplot

    fills = list(dict.fromkeys(point.fill for point in points))
    figure, axes = pyplot.subplots(
        2, len(fills), figsize=(3.7 * len(fills), 6.4), squeeze=False, sharey="row", layout="constrained"
    )
    for column, fill in enumerate(fills):
        above, below = axes[0][column], axes[1][column]
        for warps, color in (("mixed", COLORS[3]), ("uniform", OURS_COLOR)):
            line = [point for point in points if (point.fill, point.warps) == (fill, warps)]
            repeats = [point.repeats for point in line]
            above.plot(
                repeats,
                [p.branch_free.median for p in line],
                "--s",
                color=color,
                label=f"branch-free, {warps}",
            )
            above.plot(
                repeats, [p.skipping.median for p in line], "-o", color=color, label=f"skipping, {warps}"
            )
            below.plot(repeats, [p.gain for p in line], "-o", color=color, label=f"{warps}: measured")
            limit = predicted_gain(fill, line[0].warps)
            below.axhline(limit, color=color, linestyle=":", label=f"{warps}: limit of endless arithmetic")
        above.set_title(f"{fill:.0%} of slots valid")
        above.set_yscale("log")
        below.set_yscale("log")
        below.set_xlabel("GIoU computations a slot (n)")
        for axis in (above, below):
            axis.set_xscale("log", base=2)
            axis.grid(alpha=0.3)
    axes[0][0].set_ylabel("µs a launch (CUDA graph)")
    axes[1][0].set_ylabel("gain: branch-free / skipping")
    axes[0][0].legend(fontsize=7)
    axes[1][-1].legend(fontsize=7)
    save_figure(figure, path)
    return path


def _row(rows: Sequence[Row], case: Case, peer: str, measure: Measure) -> Row | None:
    return next((r for r in rows if (r.case, r.peer, r.measure) == (case, peer, measure)), None)


def save_figure(figure: Any, path: Path) -> None:
    """Writes a figure as PNG, whole or not at all, and closes it."""
    from matplotlib import pyplot

    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=150)
    pyplot.close(figure)
    atomic_write(path, content.getvalue())
