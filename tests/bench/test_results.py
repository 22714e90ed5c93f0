"""Rows, the CSV file, tables, and the ratios that are held against must and aim."""

import csv
from pathlib import Path

import pytest

from lensbox.bench import figures
from lensbox.bench.cases import Case, all_cases
from lensbox.bench.ops_report import Report, case_text, markdown
from lensbox.bench.peers import registry
from lensbox.bench.results import COLUMNS, Measure, Row, fastest, write_csv
from lensbox.bench.table import case_table, format_markdown, format_text, number
from lensbox.bench.timing import Summary

CASE = Case("headline", "loss", "forward", "cuda", 1024, 256, cold=True)


def row(peer: str, measure: Measure, median: float, case: Case = CASE, share: float | None = None) -> Row:
    return Row(case, peer, measure, Summary(median, median * 0.9, median * 1.1, 9), 1_250_000, share)


def test_csv_is_one_long_table(tmp_path: Path) -> None:
    path = tmp_path / "ops.csv"
    rows = [
        row("lensbox", "graph cold", 4.4, share=0.0712),
        Row(CASE, "triton", "", note="not available: no GPU"),
    ]
    write_csv(path, rows)
    with path.open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert tuple(lines[0]) == COLUMNS
    assert (
        *("group", "kind", "direction", "device", "threads", "batch", "slots", "fill"),
        *("pred_dtype", "target_dtype", "peer", "measure", "median_us", "p20_us", "p80_us", "samples"),
        *("useful_bytes", "copy_bandwidth_share", "note"),
    ) == COLUMNS
    figure, missing = lines
    assert (figure["median_us"], figure["p20_us"], figure["p80_us"]) == ("4.4", "3.96", "4.84")
    assert (figure["fill"], figure["pred_dtype"], figure["target_dtype"]) == ("normal", "bfloat16", "uint8")
    assert (figure["measure"], figure["copy_bandwidth_share"], figure["samples"]) == (
        "graph cold",
        "0.0712",
        "9",
    )
    assert (missing["peer"], missing["median_us"], missing["note"]) == ("triton", "", "not available: no GPU")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (55_812.0, "55,800"),
        (306.2, "306"),
        (17.26, "17.3"),
        (4.4, "4.40"),
        (0.7123, "0.712"),
        (99.96, "100"),
        (0, "0.000"),
    ],
)
def test_numbers_have_three_digits(value: float, expected: str) -> None:
    assert number(value) == expected


def test_text_columns_line_up() -> None:
    assert format_text(["peer", "µs"], [["a", "1.00"], ["longer", "12"]]).splitlines() == [
        "peer      µs",
        "------  ----",
        "a       1.00",
        "longer    12",
    ]


def test_markdown_table() -> None:
    assert format_markdown(["a", "b"], [["x", "1"]]).splitlines() == [
        "| a | b |",
        "| --- | ---: |",
        "| x | 1 |",
    ]


def test_a_case_table_compares_like_with_like() -> None:
    rows = [
        row("lensbox", "call", 20.0),
        row("lensbox", "graph", 4.0, share=0.05),
        row("eager", "call", 200.0),
        Row(CASE, "eager", "graph", note="not available: it waits"),
        Row(CASE, "loop", "", note="not available: it waits"),
    ]
    header, lines, notes = case_table(rows)
    assert header == ["peer", "call, µs", "x", "graph, µs", "x", "share of copy"]
    assert lines == [
        ["lensbox", "20.0 (18.0-22.0)", "1.00", "4.00 (3.60-4.40)", "1.00", "5.0%"],
        ["eager", "200 (180-220)", "10.0", "", "", ""],
    ]
    assert notes == ["eager (graph), loop: not available: it waits"]


def test_a_case_without_figures_still_says_why() -> None:
    text = case_text([Row(CASE, "lensbox", "", note="failed: OutOfMemoryError")])
    assert text.splitlines() == [CASE.title, "  - lensbox: failed: OutOfMemoryError"]


def test_the_fastest_of_several_counts() -> None:
    rows = [
        row("a", "call", 3.0),
        row("b", "call", 2.0),
        row("b", "graph", 1.0),
        Row(CASE, "c", "call", note="x"),
    ]
    found = fastest(rows, ("a", "b", "c"), "call")
    assert found is not None
    assert found.peer == "b"
    assert fastest(rows, ("c",), "call") is None


def figure_named(start: str, rows: list[Row]) -> list[str]:
    (line,) = [line for line in figures.figure_lines(rows) if line[0].startswith(start)]
    return line


@pytest.mark.parametrize(
    ("peer_median", "verdict"), [(20.0, "aim reached"), (14.0, "reached"), (12.0, "BELOW")]
)
def test_a_ratio_is_held_against_must_and_aim(peer_median: float, verdict: str) -> None:
    rows = [row("lensbox", "graph", 4.0), row("torch.compile", "graph", peer_median)]
    rows.append(row("torch.compile max-autotune", "graph", 1.0))  # a row of the table, not of the figures
    line = figure_named("forward, graph", rows)
    assert line[1:] == [number(peer_median), "4.00", number(peer_median / 4), "3.2", "4.5", verdict]


def test_a_ratio_without_both_sides_is_not_measured() -> None:
    assert figure_named("forward, call", [row("lensbox", "call", 17.0)])[-1] == "not measured"


def test_every_figure_has_a_case_and_its_peers() -> None:
    cases = {
        (case.group, case.kind, case.direction, case.batch, case.slots)
        for quick in (False, True)
        for case in all_cases("cuda", quick=quick, threads=1)
    }
    peers = {
        peer.name
        for peers in (
            registry.LOSS_PEERS,
            registry.UNPADDED_LOSS_PEERS,
            registry.TRANSFER_PEERS,
            registry.NMS_PEERS,
        )
        for peer in peers
    }
    for figure in figures.FIGURES:
        assert (figure.group, figure.kind, figure.direction, figure.batch, figure.slots) in cases
        assert {*figure.peers, *figure.ours} <= peers
        assert figure.limit.aim is not None
        assert figure.limit.must < figure.limit.aim


def test_the_report_holds_everything() -> None:
    report = Report([("date", "today")], [row("lensbox", "call", 17.3)], [], ["exercise: it runs on a GPU"])
    text = markdown(report)
    for part in (
        "- date: today",
        "## Figures",
        f"### {CASE.title} (1.25 MB to be moved)",
        "17.3",
        "a GPU",
    ):
        assert part in text
