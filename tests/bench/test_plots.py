"""The plots: which of them are drawn, and that the points of one can be seen."""

from pathlib import Path

import pytest

from lensbox.bench.cases import Case
from lensbox.bench.exercise import Point
from lensbox.bench.peers import registry
from lensbox.bench.plots import write_plots
from lensbox.bench.results import Row
from lensbox.bench.timing import Summary

pytest.importorskip("matplotlib")

HEADLINE = Case("headline", "loss", "forward", "cuda", 1024, 256)
SIZES = [Case("sizes", "loss", "forward", "cuda", batch, 256) for batch in (1, 16, 4096)]
TIME = Summary(4.0, 3.9, 4.1, 9)
BRANCH_FREE, SKIPPING = Summary(260, 259, 261, 7), Summary(94, 93, 95, 7)
POINTS = [Point(0.01, "mixed", 16, BRANCH_FREE, SKIPPING), Point(0.01, "uniform", 16, BRANCH_FREE, SKIPPING)]


def rows_of(cases: list[Case]) -> list[Row]:
    return [Row(case, peer, "graph", TIME) for case in cases for peer in registry.SWEPT]


def test_a_plot_is_drawn_where_there_are_results(tmp_path: Path) -> None:
    every = {tmp_path / "headline.png", tmp_path / "sizes.png", tmp_path / "exercise.png"}
    assert set(write_plots(tmp_path, rows_of([HEADLINE, *SIZES]), POINTS)) == every
    assert set(tmp_path.iterdir()) == every
    assert write_plots(tmp_path, rows_of([HEADLINE]), []) == [tmp_path / "headline.png"]
    assert write_plots(tmp_path, rows_of(SIZES), []) == [tmp_path / "sizes.png"]
    without_figures = [Row(case, "lensbox", "", note="not available") for case in (HEADLINE, *SIZES)]
    assert write_plots(tmp_path, without_figures, []) == []


def test_the_legend_of_sizes_hides_no_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from matplotlib import pyplot

    monkeypatch.setattr(pyplot, "close", lambda figure: None)
    write_plots(tmp_path, rows_of(SIZES), [])
    figure = pyplot.gcf()
    try:
        assert not any(axis.get_legend() for axis in figure.axes)
        (legend,) = figure.legends
        assert len(legend.get_texts()) == len(registry.SWEPT)
        box = legend.get_window_extent()
        assert box.y1 <= min(axis.xaxis.label.get_window_extent().y0 for axis in figure.axes)
        assert box.x0 >= 0
        assert box.x1 <= figure.bbox.x1
    finally:
        monkeypatch.undo()
        pyplot.close(figure)
