"""Damaged and altered files: Python follows the table of outcomes, and the docs list all its rows."""

import re
from pathlib import Path

import pytest
from altered_artifacts import ALTERED

from lensbox.common.errors import ArtifactError
from lensbox.runtime.loading import load_artifact

_PAGE = Path(__file__).parents[2] / "docs" / "artifact.md"


@pytest.mark.parametrize("case", ALTERED)
def test_outcome_of_each_altered_file(case: str, artifact_path: Path, tmp_path: Path) -> None:
    altered = ALTERED[case]
    path = tmp_path / "altered.pt"
    altered.write(artifact_path.read_bytes(), path)
    if altered.outcome == "refused":
        with pytest.raises(ArtifactError, match=altered.python) as caught:
            load_artifact(path)
        assert path.name in str(caught.value)
        return
    report = load_artifact(path).self_test()
    assert report.passed == (altered.outcome == "good"), report.failures
    assert altered.python in " ".join(report.failures)


def test_docs_list_all_rows() -> None:
    table = _PAGE.read_text(encoding="utf-8").split("How bad files are handled:")[1]
    lines = re.findall(r"^\| (.*?) \|", table.split("\n\n")[1], re.MULTILINE)
    assert lines[:2] == ["file", "---"]
    signatures = [line for line in lines if "public key" in line]  # tests/helpers/signing_keys.py
    assert len(signatures) == 1
    assert set(lines[2:]) - set(signatures) == {altered.line for altered in ALTERED.values()}
