"""Rows, tables, the CSV file, and figures that are held against must and aim."""

import csv
import io
from pathlib import Path

import pytest
import torch

from lensbox.bench.report import COLUMNS, Figure, Options, Report, Table, case_table, csv_of, number
from lensbox.bench.runner import Row
from lensbox.bench.timing import Summary


def row(way: str, measure: str, median: float, images: int = 0, share: float | None = None) -> Row:
    return Row("case", way, measure, Summary(median, median * 0.9, median * 1.1, 9), images, 1_250_000, share)


def test_csv_has_a_line_per_row() -> None:
    rows = [row("lensbox", "graph cold", 4.4, 2, 0.0712), Row("case", "triton", "", note="no GPU")]
    figure, missing = list(csv.DictReader(io.StringIO(csv_of(rows))))
    assert tuple(figure) == COLUMNS
    assert list(figure.values()) == [
        *("case", "lensbox", "graph cold", "4.4", "3.96", "4.84", "9", "455000", "1250000", "0.0712", "")
    ]
    assert (missing["way"], missing["median_us"], missing["samples"], missing["note"]) == (
        *("triton", "", "0", "no GPU"),
    )


@pytest.mark.parametrize(
    ("value", "expected"),
    [(55_812.0, "55,800"), (306.2, "306"), (17.26, "17.3"), (4.4, "4.40"), (0.7123, "0.712"), (99.96, "100")],
)
def test_numbers_have_three_digits(value: float, expected: str) -> None:
    assert number(value) == expected


def test_a_table_as_text_and_markdown() -> None:
    table = Table("title", ["way", "µs"], [["a", "1.00"], ["longer", "12"]], ["b: no GPU"])
    assert table.text().splitlines() == [
        "title",
        "way       µs",
        "------  ----",
        "a       1.00",
        "longer    12",
        "  - b: no GPU",
    ]
    assert table.markdown().splitlines() == [
        *("### title", "", "| way | µs |", "| --- | ---: |", "| a | 1.00 |", "| longer | 12 |"),
        *("", "- b: no GPU"),
    ]


def test_a_case_table_compares_with_the_first_way_by_the_same_measure() -> None:
    rows = [
        row("lensbox", "call", 20.0),
        row("lensbox", "graph", 4.0, share=0.05),
        row("eager", "call", 200.0),
        Row("case", "eager", "graph", note="it waits"),
        Row("case", "loop", "", note="it waits"),
    ]
    table = case_table(rows)
    assert table.title == "case (1.25 MB to be moved)"
    assert table.header == ["way", "call, µs", "x", "graph, µs", "x", "share of copy"]
    assert table.lines == [
        ["lensbox", "20.0 (18.0-22.0)", "1.00", "4.00 (3.60-4.40)", "1.00", "5.0%"],
        ["eager", "200 (180-220)", "10.0", "", "", ""],
    ]
    assert table.notes == ["eager (graph), loop: it waits"]
    # With images, and without a figure of the first way.
    table = case_table([Row("case", "lensbox", "", note="failed"), row("eager", "call", 20.0, images=4)])
    assert table.header == ["way", "call, µs", "x", "images/s"]
    assert table.lines == [["eager", "20.0 (18.0-22.0)", "", "200,000"]]


@pytest.mark.parametrize(
    ("value", "at_most", "verdict"),
    [
        (5.0, False, "aim reached"),
        (3.5, False, "reached"),
        (3.0, False, "BELOW"),
        (5.0, True, "ABOVE"),
        (float("nan"), True, "ABOVE"),
        (None, False, "not measured"),
    ],
)
def test_a_figure_is_held_against_must_and_aim(value: float | None, at_most: bool, verdict: str) -> None:
    figure = Figure("name", value, 3.2, 4.5, at_most, details=("16", "4"))
    assert figure.verdict == verdict
    sign = "≤" if at_most else "≥"
    shown = "" if value is None else number(value)
    assert figure.cells == ["name", "16", "4", shown, f"{sign} 3.2", f"{sign} 4.5", verdict]
    assert Figure("name", 1.0).verdict == ""


def test_the_report_is_written_as_the_run_goes(tmp_path: Path) -> None:
    said: list[str] = []
    report = Report.start("ops", Options("cpu", tmp_path, say=said.append), ("numpy",), 38.9e9)
    assert "38.9 GB/s on cpu" in said[0]
    report.add([row("lensbox", "call", 17.3)])
    assert "17.3" in (tmp_path / "ops.csv").read_text()
    assert "| lensbox | 17.3 (15.6-19.0) | 1.00 |" in (tmp_path / "ops.md").read_text()
    report.notes.append("exercise: it runs on a GPU")
    report.finish([Figure("ratio", 2.0, 1.0)])
    text = (tmp_path / "ops.md").read_text()
    assert f"- torch: {torch.__version__}" in text
    assert text.index("### Figures") < text.index("### case")
    assert text.endswith("### Not run\n\n- exercise: it runs on a GPU\n")
    assert said[-1] == "Note: exercise: it runs on a GPU"
    assert report.median("case", "lensbox", "call") == 17.3
    assert report.median("case", "lensbox", "graph") is None
    assert not report.has_own_defect
    report.rows.append(Row("case", "lensbox", "", note="WRONG: off", own=True))
    assert report.has_own_defect
