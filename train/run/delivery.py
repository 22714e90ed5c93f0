"""Write the results of a run: weights with their origin in the metadata, and figures."""

from __future__ import annotations

import dataclasses
import json
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from lensbox.common.files import atomic_write
from lensbox.model import save_detector
from lensbox.model.weights_file import FIGURES_KEY
from lensbox.train.evaluation.evaluate import Figures
from lensbox.train.run import process_group
from lensbox.train.run.step import TrainStep
from lensbox.train.settings import TrainConfig

BEST_FILE = "best.safetensors"
LAST_FILE = "weights.safetensors"


@dataclass(frozen=True)
class Delivery:
    """Write the weight average of a run, with everything needed to repeat the run in the metadata.

    Attributes:
        folder: where the files go.
        config: of the run.
        facts: more for the metadata: command line, data, first weights, teachers.
    """

    folder: Path
    config: TrainConfig
    facts: dict[str, str]

    def keep_best(self, step: TrainStep, figures: Figures, best: float, seconds: float) -> float:
        """Write `best.safetensors` if the average precision for faces of at least 8 px is above `best`, the
        highest so far. Return the highest."""
        score = figures.average_precision["all>=8"]
        if not score > best:  # without such faces it is not a number
            return best
        self._write(BEST_FILE, step, figures, seconds)
        return score

    def deliver(self, step: TrainStep, figures: Figures | None, seconds: float) -> None:
        """Write `weights.safetensors` and `figures.json`. seconds: duration of the run."""
        summary = self._write(LAST_FILE, step, figures, seconds)
        whole = {**summary, "config": dataclasses.asdict(self.config), **self.facts}
        atomic_write(self.folder / "figures.json", (json.dumps(whole, indent=2) + "\n").encode())

    def _write(self, name: str, step: TrainStep, figures: Figures | None, seconds: float) -> dict[str, Any]:
        on_gpu = step.device.type == "cuda"
        summary = {
            **(figures.to_json() if figures is not None else {}),
            "steps": step.step,
            "views": step.step * self.config.batch_size * process_group.size(),
            "seconds": round(seconds, 1),
            "mode": step.mode,
            "torch": torch.__version__,
            "device": torch.cuda.get_device_name(step.device) if on_gpu else "cpu",
            "platform": platform.platform(),
        }
        facts = {name: _as_unicode(fact) for name, fact in self.facts.items()}
        metadata = {"recipe": self.config.to_json(), FIGURES_KEY: json.dumps(summary), **facts}
        save_detector(step.average.detector, self.folder / name, metadata)
        return summary


def _as_unicode(text: str) -> str:
    """Escape lone surrogates, which paths that are no UTF-8 contain and metadata must not."""
    return text.encode(errors="backslashreplace").decode()
