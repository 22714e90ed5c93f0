"""The metadata of an artifact, and `lensbox.json`, the form in which it is stored."""

import json
from dataclasses import dataclass
from typing import Any

import torch

from lensbox.runtime.self_test import SelfTest, Tolerance

FORMAT_VERSION = 1


@dataclass(frozen=True)
class ArtifactMetadata:
    """What `lensbox.json` says of an artifact.

    weights_sha256: `lensbox.model.weights_sha256` of the weights it was made from.
    input, output: dtype, shape and unit of the methods' tensors, for people and clients.
    ops: schemas of the operators that a process must have registered before it loads the artifact.
    """

    format_version: int
    name: str
    lensbox_version: str
    torch_version: str
    weights_sha256: str
    input: dict[str, Any]
    output: dict[str, Any]
    score_threshold: float
    iou_threshold: float
    ops: tuple[str, ...]
    methods: tuple[str, ...]
    self_test: SelfTest

    def to_json(self) -> str:
        """The content of `lensbox.json`."""
        return json.dumps(_to_dict(self))

    @classmethod
    def from_json(cls, text: str) -> "ArtifactMetadata":
        """Reads what `to_json` wrote. Raises ValueError if it is malformed or of a newer format version."""
        try:
            values = json.loads(text)
            version = int(values["format_version"])
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"there is no readable format_version: {error!r}") from error
        if version > FORMAT_VERSION:
            raise ValueError(
                f"its format version is {version}, this Lensbox reads up to {FORMAT_VERSION}: update Lensbox "
                f"(it was written by {values.get('lensbox_version', 'an unknown version')})"
            )
        try:
            return _from_dict(values)
        except KeyError as error:
            raise ValueError(f"it lacks the entry {error}") from error
        except (AttributeError, IndexError, TypeError, ValueError, RuntimeError) as error:
            raise ValueError(f"it is malformed: {error}") from error


def _to_dict(metadata: ArtifactMetadata) -> dict[str, Any]:
    test = metadata.self_test
    return {
        "format_version": metadata.format_version,
        "name": metadata.name,
        "lensbox_version": metadata.lensbox_version,
        "torch_version": metadata.torch_version,
        "weights_sha256": metadata.weights_sha256,
        "input": metadata.input,
        "output": metadata.output,
        "defaults": {"score_threshold": metadata.score_threshold, "iou_threshold": metadata.iou_threshold},
        "ops": list(metadata.ops),
        "methods": list(metadata.methods),
        "self_test": {
            "image": {"shape": list(test.image.shape), "pixels": test.image.flatten().tolist()},
            "score_threshold": test.score_threshold,
            "iou_threshold": test.iou_threshold,
            "expected": {"boxes": test.boxes.tolist(), "scores": test.scores.tolist()},
            "loss": {
                "predictions": test.loss_predictions.tolist(),
                "targets": test.loss_targets.tolist(),
                "expected": test.loss,
            },
            "tolerance": {
                device: {"boxes": limit.boxes, "scores": limit.scores, "loss": limit.loss}
                for device, limit in test.tolerances.items()
            },
        },
    }


def _from_dict(values: dict[str, Any]) -> ArtifactMetadata:
    test = values["self_test"]
    image = torch.tensor(test["image"]["pixels"], dtype=torch.uint8).view(test["image"]["shape"])
    return ArtifactMetadata(
        format_version=values["format_version"],
        name=values["name"],
        lensbox_version=values["lensbox_version"],
        torch_version=values["torch_version"],
        weights_sha256=values["weights_sha256"],
        input=values["input"],
        output=values["output"],
        score_threshold=float(values["defaults"]["score_threshold"]),
        iou_threshold=float(values["defaults"]["iou_threshold"]),
        ops=tuple(values["ops"]),
        methods=tuple(values["methods"]),
        self_test=SelfTest(
            image=image,
            score_threshold=float(test["score_threshold"]),
            iou_threshold=float(test["iou_threshold"]),
            boxes=torch.tensor(test["expected"]["boxes"], dtype=torch.float32).view(-1, 4),
            scores=torch.tensor(test["expected"]["scores"], dtype=torch.float32),
            loss_predictions=torch.tensor(test["loss"]["predictions"], dtype=torch.float32),
            loss_targets=torch.tensor(test["loss"]["targets"], dtype=torch.float32),
            loss=float(test["loss"]["expected"]),
            tolerances={
                device: Tolerance(limit["boxes"], limit["scores"], limit["loss"])
                for device, limit in test["tolerance"].items()
            },
        ),
    )
