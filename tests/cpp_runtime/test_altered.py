"""The table of altered artifacts and their outcomes, checked with the C++ program."""

import re
from pathlib import Path

import pytest
from altered_artifacts import ALTERED
from cpp_runtime.running import Run


@pytest.mark.parametrize("case", ALTERED)
def test_outcome_of_an_altered_artifact(case: str, run: Run, artifact: Path, tmp_path: Path) -> None:
    altered = ALTERED[case]
    path = tmp_path / "altered.pt"
    altered.write(artifact.read_bytes(), path)
    result = run("selftest", "--artifact", path)
    if altered.outcome == "good":
        assert result.code == 0, result.stderr
        return
    assert result.code == 3, result.stderr
    if altered.outcome == "refused":
        assert result.stdout == ""
        assert result.stderr.startswith(f"lensbox_runner: artifact {path}: ")
        assert re.search(altered.cpp, result.stderr), result.stderr
    else:
        assert altered.cpp in " ".join(result.json()["failures"])
