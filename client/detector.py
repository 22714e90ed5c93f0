"""What `lensbox detect` asks: an artifact in this process, or a service."""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lensbox.client.answers import ImageDetections
from lensbox.client.client import Client, Orientation
from lensbox.client.many import BATCH_SIZE
from lensbox.common.errors import LensboxError

Results = Generator[ImageDetections | LensboxError, None, None]


@dataclass(frozen=True)
class Question:
    """How to look at images. None: as the artifact says."""

    score_threshold: float | None = None
    iou_threshold: float | None = None
    orientation: Orientation | None = None


@dataclass(frozen=True)
class Detector:
    """detect: results in the order of the files, an error where there is none. classes, points: the names of
    the classes, and of those further outputs that are points. orientation: in which photographs are read."""

    detect: Callable[[Sequence[Path]], Results]
    classes: tuple[str, ...]
    points: tuple[str, ...]
    orientation: str


def service_detector(client: Client, question: Question, batch_size: int | None) -> Detector:
    """Asks a service, several files at a time. batch_size: files of one request, at most. Raises
    ServiceError."""

    def detect(files: Sequence[Path]) -> Results:
        return client.detect_many(
            files,
            score_threshold=question.score_threshold,
            iou_threshold=question.iou_threshold,
            orientation=question.orientation,
            batch_size=batch_size or BATCH_SIZE,
        )

    return _described(detect, client.metadata(), question)


def artifact_detector(
    path: Path,
    question: Question,
    device: str,
    batch_size: int | None,
    decode_threads: int | None,
    public_key: Path | None,
) -> Detector:
    """Loads an artifact, and reads files in threads ahead of it. Raises ArtifactError, DeviceError."""
    # Imported here, as torch takes seconds to load, and is of no use to who asks a service.
    import json

    from lensbox.runtime.detection_json import detections_to_json
    from lensbox.runtime.freed_memory import keep_freed_memory
    from lensbox.runtime.loading import load_artifact

    artifact = load_artifact(path, device, public_key=public_key)
    if artifact.device.type == "cpu":
        keep_freed_memory()
    # On a CPU, what a larger batch computes leaves the caches.
    size = batch_size or (8 if artifact.device.type == "cpu" else 64)

    def detect(files: Sequence[Path]) -> Results:
        for found in artifact.file_detections(
            files,
            size,
            decode_threads,
            question.score_threshold,
            question.iou_threshold,
            question.orientation,
        ):
            if isinstance(found, LensboxError):
                yield found
                continue
            detections = detections_to_json(found.detections, artifact.classes)
            # Through the same form, so that answers are the same from everywhere.
            yield ImageDetections.from_json({**found._asdict(), "detections": detections})

    return _described(detect, json.loads(artifact.metadata.to_json()), question)


def _described(
    detect: Callable[[Sequence[Path]], Results], metadata: Mapping[str, Any], question: Question
) -> Detector:
    """metadata: `lensbox.json`, as far as /v1/model tells it."""
    extras = metadata.get("extras", {})
    return Detector(
        detect,
        tuple(metadata.get("classes", ())),
        tuple(name for name, extra in extras.items() if extra["kind"] == "points"),
        question.orientation or metadata.get("reading", {}).get("orientation", "exif"),
    )
