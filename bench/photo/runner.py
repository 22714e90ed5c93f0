"""Does the C++ runner find the very same as Python?"""

import json
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from lensbox.artifact.self_test import max_error
from lensbox.bench.peers.peer import UnavailableError
from lensbox.bench.photo.photographs import Photograph
from lensbox.bench.threads import cpu_threads
from lensbox.ops import library_path
from lensbox.runtime.artifact import Artifact
from lensbox.runtime.loading import load_artifact

_SECONDS = 600  # for all photographs
_THREADS = 1


@dataclass(frozen=True)
class RunnerDifference:
    """Of one photograph: how many faces each found, and the largest differences of boxes, in pixels of the
    photograph, and of scores; None where they found different numbers."""

    photograph: str
    found: int
    found_by_runner: int
    boxes: float | None
    scores: float | None


def runner_differences(
    runner: Path, artifact_file: Path, photographs: Sequence[Photograph]
) -> list[RunnerDifference]:
    """Both on the CPU, with one thread. Raises UnavailableError if the runner fails."""
    artifact = load_artifact(artifact_file)
    with tempfile.TemporaryDirectory() as folder, cpu_threads(_THREADS):
        files = []
        for index, photograph in enumerate(photographs):
            files.append(Path(folder) / f"{index}.{photograph.suffix}")
            files[-1].write_bytes(photograph.file)
        answers = _detect(runner, artifact_file, files)
        return [
            _difference(photograph, answer["detections"], artifact)
            for photograph, answer in zip(photographs, answers, strict=True)
        ]


def _detect(runner: Path, artifact_file: Path, files: Sequence[Path]) -> list[dict[str, Any]]:
    images = [argument for file in files for argument in ("--image", str(file))]
    options = ["--artifact", str(artifact_file), "--ops", str(library_path()), "--threads", str(_THREADS)]
    command = [str(runner), "detect", *options, *images]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=True)
    except subprocess.CalledProcessError as error:
        raise UnavailableError(f"{runner} fails: {error.stderr.strip()}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnavailableError(f"{runner} cannot be run: {error}") from error
    found: list[dict[str, Any]] = json.loads(answer.stdout)["images"]
    return found


def _difference(
    photograph: Photograph, by_runner: Sequence[dict[str, Any]], artifact: Artifact
) -> RunnerDifference:
    found = artifact.detect_image(artifact.read_photo(photograph.file))
    counts = (len(found.boxes), len(by_runner))
    if counts[0] != counts[1]:
        return RunnerDifference(photograph.name, *counts, None, None)
    boxes = torch.tensor([detection["box"] for detection in by_runner]).view(-1, 4)
    scores = torch.tensor([detection["score"] for detection in by_runner])
    return RunnerDifference(
        photograph.name, *counts, max_error(found.boxes, boxes), max_error(found.scores, scores)
    )
