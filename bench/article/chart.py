"""A bar chart of the phases. matplotlib is imported when it is drawn."""

from __future__ import annotations

import math
from pathlib import Path

from lensbox.bench.article.published import WHERE
from lensbox.bench.article.results import ArticleReport
from lensbox.bench.article.rows import OWN
from lensbox.bench.article.step import PHASES
from lensbox.bench.plots import COLORS, OURS_COLOR, save_figure
from lensbox.bench.table import number

_HEIGHT = 0.4  # of a bar; two lie beside each other


def write_chart(path: Path, report: ArticleReport) -> None:
    """A panel a phase, a bar a row, on logarithmic axes; the article's own figures as light bars beneath.

    Raises:
        ModuleNotFoundError: matplotlib is not installed.
    """
    import matplotlib

    matplotlib.use("Agg")  # no display needed
    from matplotlib import pyplot

    results = [result for result in report.rows if result.phases]
    figure, axes = pyplot.subplots(
        1,
        len(PHASES),
        figsize=(3.4 * len(PHASES) + 1, 1.4 + 0.5 * len(results)),
        sharex=True,
        sharey=True,
        layout="constrained",
    )
    shortest, longest = math.inf, 0.0
    for axis, phase in zip(axes, PHASES, strict=True):
        for place, result in enumerate(results):
            published = result.published.of(phase) if result.published is not None else None
            bars = []
            if phase in result.phases:
                color = OURS_COLOR if result.row in OWN else COLORS[0]
                bars.append((place - _HEIGHT / 2, result.phases[phase].median / 1e3, color))
            if published is not None:
                bars.append((place + _HEIGHT / 2, published, COLORS[-1]))
            for at, milliseconds, color in bars:
                axis.barh(at, milliseconds, _HEIGHT * 0.92, color=color)
                beside = {"xytext": (3, 0), "textcoords": "offset points", "va": "center"}
                axis.annotate(number(milliseconds), (milliseconds, at), fontsize=8, **beside)
                shortest, longest = min(shortest, milliseconds), max(longest, milliseconds)
        axis.set_xscale("log")
        axis.set_title(phase)
        axis.set_xlabel("ms (log)")
        axis.spines[["top", "right"]].set_visible(False)
    # Room for the shortest bar, and for the figure beside the longest.
    axes[0].set_xlim(shortest / 3, longest * 12)
    axes[0].set_yticks(range(len(results)), [result.row for result in results])
    axes[0].invert_yaxis()
    figure.suptitle(f"The article's step, {report.scale.batch} images; gray: as published ({WHERE})")
    save_figure(figure, path)
