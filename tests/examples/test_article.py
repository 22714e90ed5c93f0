"""The article's experiment, scaled down for a CPU, and the training of its net."""

import importlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from programs import Lensbox, load_example

from lensbox.common.errors import ExitCode
from lensbox.common.machine import cpu_name

FOLDER = Path(__file__).parents[2] / "examples" / "article"
COMMAND = ["bench", "article", "--batch", "2", "--quick"]
OURS = ["Lensbox, padded", "Lensbox, jagged"]
PHASES = ["copy data", "forward", "calc loss", "backward", "optimizer"]


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))


def experiment() -> Any:
    return importlib.import_module("experiment")


def rows_of(printed: str) -> dict[str, list[str]]:
    lines = [line.strip("| ").split(" | ") for line in printed.splitlines() if line.startswith("| ")]
    return {name.strip(): [cell.strip() for cell in cells] for name, *cells in lines[2:]}


def test_prints_a_table_and_writes_chart_and_traces(tmp_path: Path, lensbox: Lensbox) -> None:
    chart, traces = tmp_path / "new" / "article.png", tmp_path / "traces"
    printed, _ = lensbox(*COMMAND, "--device", "cpu", "--chart", chart, "--trace", traces)
    rows = rows_of(printed)
    assert list(rows) == ["per-sample loop", "concatenation", "padding", *OURS]
    assert "5.71" not in rows["padding"]  # the article's, of a GPU and a batch of 1,024
    assert f"- without the article's figures, which are of {experiment().PUBLISHED_ON}" in printed
    assert f"threads of {cpu_name()}, torch {torch.__version__}, a batch of 2\n" in printed
    assert all(float(cell.replace(",", "")) > 0 for cell in rows[OURS[0]][:7])
    assert "- article's kernel: not available: a CUDA kernel" in printed
    with Image.open(chart) as picture:
        assert picture.width > picture.height > 300
    (trace,) = (traces / "lensbox_jagged").glob("*.pt.trace.json")
    named = [event.get("name") for event in json.loads(trace.read_text())["traceEvents"]]
    assert [named.count(phase) for phase in PHASES] == [1] * 5
    assert "lensbox::jagged_giou_loss" in named


def test_figures_of_the_article_stand_beside_a_run_of_its_size() -> None:
    padding = next(approach for approach in experiment().APPROACHES if approach.name == "padding")
    row = (padding, [1340.0, 34.6, 0.837, 39.7, 4.13], 77.1)
    compared, alone = (
        rows_of(experiment().table([row], 1024, [], shown))["padding"] for shown in (True, False)
    )
    assert compared == ["1,340", "34.6", "0.837", "39.7", "4.13", "77.1", "13,300", "5.71", "132", "1.84"]
    assert alone == compared[:-3]


def test_a_wrong_loss_of_our_own_fails_the_run(monkeypatch: pytest.MonkeyPatch, lensbox: Lensbox) -> None:
    padding, ours = (
        next(approach for approach in experiment().APPROACHES if approach.name == name)
        for name in ("padding", OURS[0])
    )

    def shifted(device: torch.device) -> Any:
        return lambda pred, target: padding.load(device)(pred, target) + 1

    monkeypatch.setattr(experiment(), "APPROACHES", [replace(ours, load=shifted), padding])
    printed, _ = lensbox(*COMMAND, "--device", "cpu", code=ExitCode.DEFECT)
    assert f"{OURS[0]}: WRONG: the loss is off by" in printed
    assert list(rows_of(printed)) == ["padding"]


@pytest.mark.gpu
def test_the_articles_kernel_runs_on_a_gpu(lensbox: Lensbox) -> None:
    rows = rows_of(lensbox(*COMMAND, "--device", "cuda")[0])
    for name in ("article's kernel", "article's kernel, conditional"):
        assert not any(rows[name][3:])  # the kernel has no gradient
    assert all(rows[OURS[1]][:7])


def test_one_objective_makes_boxes_worse_and_the_other_better(monkeypatch: pytest.MonkeyPatch) -> None:
    train = load_example("article/train.py", monkeypatch)["train"]
    for objective, sign in (("mean GIoU", -1), ("1 - GIoU", 1)):
        before, after = train(objective, 25, 4, "cpu")
        assert sign * (after - before) > 0.03
