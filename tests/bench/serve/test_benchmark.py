"""`lensbox bench serve`: the check of answers, a short run."""

from pathlib import Path
from typing import Any

import pytest
from programs import needs_wrk

from lensbox.bench.measure import WrongAnswerError
from lensbox.bench.serve.benchmark import photo_of, require_same
from lensbox.cli.main import main
from lensbox.common.errors import ExitCode
from lensbox.runtime import load_artifact
from lensbox.runtime.detect.detection import detections_to_json


def test_other_boxes_than_the_artifacts_are_caught(artifact_path: Path) -> None:
    artifact = load_artifact(artifact_path, "cpu")
    photo = photo_of(artifact)
    rows: list[Any] = detections_to_json(artifact.detect_image(artifact.read_photo(photo)), ())
    near = [row | {"box": [edge + 0.5 for edge in row["box"]]} for row in rows]
    require_same(artifact, photo, {"detections": near})
    unclear = [row for row in rows if row["score"] <= artifact.metadata.score_threshold + 0.2]
    assert len(unclear) < len(rows)
    for wrong in (unclear, [*rows, {"box": [1.0, 2.0, 3.0, 4.0], "score": 1.0}]):
        with pytest.raises(WrongAnswerError, match="the answer: "):
            require_same(artifact, photo, {"detections": wrong})


@needs_wrk
def test_a_short_run_prints_a_table_for_each_number(
    artifact_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["bench", "serve", "--device", "cpu", "--quick", "--artifact", str(artifact_path)]
    assert main([*command, "--seconds", "1", "--connections", "1", "2"]) == ExitCode.GOOD
    one, two = capsys.readouterr().out.split("### ")[1:]
    assert one.startswith("1 connection, JPEG of 512 x 512, ")
    assert two.startswith("2 connections, ")
    lines = [line.split("|")[1:-1] for line in (one + two).splitlines() if "|" in line]
    cells = [(line[0].strip(), line[-1].strip()) for line in lines]
    served = [line for line in cells if line[0] in ("lensbox", "in process")]
    assert served == [("lensbox", "0"), ("in process", "0"), ("lensbox", "0")]
