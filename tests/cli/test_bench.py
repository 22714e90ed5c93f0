"""`lensbox bench FILE`."""

import json
import shutil
from pathlib import Path

import pytest
from programs import Lensbox

from lensbox.cli import timing
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
