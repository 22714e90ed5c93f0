"""`lensbox bench FILE`, and how it times calls."""

import json
import shutil
import time
from functools import partial
from pathlib import Path

import pytest
import torch
from programs import Lensbox

from lensbox.cli import bench as timing
from lensbox.cli.bench import summarize, time_in_turns
from lensbox.common.errors import ExitCode


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "_ROUNDS", 3)


def test_prints_a_table_or_json_of_several_files(
    random_path: Path, program_path: Path, tmp_path: Path, lensbox: Lensbox
) -> None:
    artifact = str(random_path)
    lines = lensbox("bench", artifact, "--batch", 1)[0].splitlines()
    assert lines[0].startswith("1 CPU threads, torch ")
    rows = [line[len(artifact) :].split()[:2] for line in lines[3:]]
    assert rows == [["cpu", "canvases"], ["cpu", "images"]]
    other = str(shutil.copy(program_path, tmp_path / "other.pt2"))
    options = ["--json", "--batch", "1,3", "--device", "cpu"]
    found = json.loads(lensbox("bench", *options, artifact, "--artifact", other)[0])
    assert found["threads"] == 1
    assert [(row["artifact"], row["device"], row["from"], row["batch"]) for row in found["rows"]] == [
        (file, "cpu", way, batch)
        for batch in (1, 3)
        for file in (artifact, other)
        for way in ("canvases", "images of 640x480")
    ]
    for row in found["rows"]:
        assert 0 < row["p20_ms"] <= row["median_ms"] <= row["p80_ms"]
        assert row["images_per_second"] == pytest.approx(1000 * row["batch"] / row["median_ms"])


@pytest.mark.parametrize("text", ["0", "1,", "a", "-1", "4097"])
def test_refuses_other_batch_sizes(text: str, random_path: Path, lensbox: Lensbox) -> None:
    assert "none.pt" in lensbox("bench", "none.pt", code=ExitCode.UNUSABLE)[1]
    _, said = lensbox("bench", random_path, f"--batch={text}", code=ExitCode.USAGE)
    assert f"whole numbers from 1 to 4096, such as 1,8,32, got '{text}'" in " ".join(said.split())


def test_summary_orders_its_samples() -> None:
    assert summarize([30.0, 10.0, 20.0, 50.0, 40.0, 0.0]) == (25.0, 10.0, 40.0, 6)


def test_calls_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "_ROUNDS", 3)
    order: list[str] = []
    threads: set[int] = set()

    def call(name: str, seconds: float) -> None:
        order.append(name)
        threads.add(torch.get_num_threads())
        time.sleep(seconds)

    before = torch.get_num_threads()
    seconds = {"a": 0.012, "b": 0.024}  # longer than a block, so that each block is one call
    times = time_in_turns({name: partial(call, name, seconds[name]) for name in seconds}, before + 1)
    assert "".join(order).endswith("b" + 3 * "aaabbb")  # two calls warm up before each sample
    assert threads == {before + 1}
    assert torch.get_num_threads() == before
    for name, least in seconds.items():
        assert times[name].samples == 3
        assert least <= times[name].p20 <= times[name].median <= times[name].p80


def test_cpu_time_leaves_out_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    # Seconds of CPU time: a longer block would have hundreds of calls.
    monkeypatch.setattr(timing, "_BLOCK_SECONDS", 1e-4)

    def call() -> None:
        time.sleep(0.01)
        sum(range(10_000))

    times = time_in_turns({"call": call}, seconds=0.0, cpu_time=True)["call"]
    assert 0 < times.median < 0.01
