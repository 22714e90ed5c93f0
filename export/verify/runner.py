"""The answers of `lensbox_runner`, for the comparison of an exported file with its detector."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from lensbox.common.detections import numbers_of_json
from lensbox.common.errors import ArtifactError
from lensbox.ops import library_path
from lensbox.runtime.detect.detection_sets import Found

_TIMEOUT = 600  # seconds


def has_onnxruntime(runner: Path) -> bool:
    """Return whether `lensbox_runner` has onnxruntime. Raises ArtifactError if the runner cannot be run."""
    return ", onnxruntime " in _output_of(runner, "--version")


class RunnerTrial:
    """An artifact and photographs in a folder, for runs of `lensbox_runner`.

    canvases: uint8 [N, c, h, w], written as photographs. ops: op libraries in addition to Lensbox's.
    """

    def __init__(
        self,
        folder: Path,
        runner: Path,
        content: bytes,
        name: str,
        device: str,
        canvases: Tensor,
        ops: Sequence[Path] = (),
    ) -> None:
        self.device = device
        self._ops = [library_path(), *(path.absolute() for path in ops)]
        self._runner = runner.absolute()  # a bare name would be searched in PATH
        self._folder = folder
        self._file = folder / f"detector{Path(name).suffix}"
        self._file.write_bytes(content)
        self._images = []
        for index, canvas in enumerate(canvases):
            pixels = canvas[0] if len(canvas) == 1 else canvas.permute(1, 2, 0)
            path = folder / f"{index:04}.png"
            Image.fromarray(pixels.contiguous().numpy()).save(path, compress_level=1)
            self._images.append(str(path))

    def detect(
        self, thresholds: tuple[float, float], batch: int, classes: Sequence[str], slots: int | None
    ) -> list[Found]:
        """Return the detections in each photograph, in its pixels.

        classes: names by label. slots: maximum number of detections in a photograph, None for any.
        """
        score, iou = map(str, thresholds)
        options = ["--score-threshold", score, "--iou-threshold", iou, "--batch", str(batch)]
        answer = self._run("detect", *options, "--image", *self._images)
        return [_found(image["detections"], classes, slots) for image in answer["images"]]

    def loss(self, predictions: Tensor, targets: Tensor) -> float:
        """Return the artifact's loss of boxes [N, 4]."""
        files = {}
        for name, boxes in (("predictions", predictions), ("targets", targets)):
            path = self._folder / f"{name}.json"
            path.write_text(json.dumps(boxes.tolist()))
            files[name] = str(path)
        answer = self._run("loss", "--predictions", files["predictions"], "--targets", files["targets"])
        return float(answer["loss"])

    def _run(self, command: str, *options: str) -> Any:
        line = ["--artifact", self._file, "--device", self.device, *options]
        for library in self._ops:
            line += ["--ops", library]
        return json.loads(_output_of(self._runner, command, *map(str, line)))


def _output_of(runner: Path, command: str, *options: str) -> str:
    """Run the runner and return its output. Raises ArtifactError if it fails."""
    try:
        done = subprocess.run(
            [str(runner), command, *options], capture_output=True, text=True, check=False, timeout=_TIMEOUT
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ArtifactError(f"the file cannot be compared with {runner}: {error}") from error
    if done.returncode != 0:
        reason = done.stderr.strip() or f"exit code {done.returncode}"
        raise ArtifactError(f"{runner} {command} failed: {reason}")
    return done.stdout


def _found(detections: Sequence[dict[str, Any]], classes: Sequence[str], slots: int | None) -> Found:
    boxes, scores = (
        torch.tensor([numbers_of_json(one[key]) for one in detections]).float() for key in ("box", "score")
    )
    labels = torch.tensor([classes.index(one["label"]) if classes else 0 for one in detections]).long()
    full = 0 < len(detections) == slots
    names = detections[0].get("extras", ()) if detections else ()
    extras = {
        name: torch.tensor([numbers_of_json(one["extras"][name]) for one in detections]) for name in names
    }
    return Found(boxes.reshape(-1, 4), scores, labels, full, extras)
