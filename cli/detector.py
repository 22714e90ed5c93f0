"""The detector of `lensbox detect`: a service, an artifact, or by default the shipped detector."""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from lensbox.client.client import Client, Orientation, Results
from lensbox.common.detect_options import Decode, tile_spec
from lensbox.common.detections import ImageDetections
from lensbox.common.errors import ArtifactError, LensboxError, OutputError
from lensbox.common.files import require_writable_folder
from lensbox.common.machine import package_version


@dataclass(frozen=True)
class Question:
    """Parameters of a detection. None: the artifact's default."""

    score_threshold: float | None = None
    iou_threshold: float | None = None
    orientation: Orientation | None = None
    tiles: str | None = None


@dataclass(frozen=True)
class Detector:
    """detect: yields a result or an error per file, in order. classes: names of the classes. points: names of
    the extras that are points. orientation: how photographs are read."""

    detect: Callable[[Sequence[Path]], Results]
    classes: tuple[str, ...]
    points: tuple[str, ...]
    orientation: str


def service_detector(client: Client, question: Question) -> Detector:
    """Ask a service. Raise ServiceError."""
    return _described(
        lambda files: client.detect_many(files, **asdict(question)), client.metadata(), question
    )


def shipped_artifact() -> Path:
    """Return the artifact of the shipped detector in the user's cache; export it if it is not there.

    Another version of Lensbox or torch, or other weights, is another file. Safe with concurrent calls: the
    file appears whole. Raise ArtifactError if the export fails, OutputError if the cache cannot be written.
    """
    from hashlib import sha256

    from lensbox.model.weights_file import SHIPPED_WEIGHTS

    weights = sha256(SHIPPED_WEIGHTS.read_bytes()).hexdigest()[:12]
    versions = f"{package_version('lensbox')}-torch-{package_version('torch')}"
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lensbox"
    path = folder / f"detector-{versions}-{weights}.pt"
    if path.is_file():
        return path
    try:
        require_writable_folder("the cache", folder)
    except OutputError as error:
        raise OutputError(f"{error}; XDG_CACHE_HOME names another cache, --artifact a file") from error
    click.echo(f"exporting the shipped detector to {path}, once", err=True)
    # A separate process: exporting changes torch's global settings.
    command = [sys.executable, "-m", "lensbox.cli", "export", "--output", str(path)]
    if subprocess.run(command, stdout=subprocess.DEVNULL).returncode != 0:
        raise ArtifactError(f"the shipped detector cannot be exported to {path}; the reason is above")
    return path


def artifact_detector(
    path: Path | None,
    question: Question,
    device: str,
    batch_size: int | None,
    decode: Decode,
    decode_threads: int | None,
    public_key: Path | None,
    ops: Sequence[Path],
) -> Detector:
    """Load an artifact, and read files ahead in threads. Raise ArtifactError or DeviceError.

    path: None for the shipped detector, loaded from the cache without the log line about its signature.
    """
    # Imported here: torch takes seconds to import, and a client of a service does not need it.
    import json

    from lensbox.common.machine import keep_freed_memory
    from lensbox.runtime.detect.detection import detections_to_json
    from lensbox.runtime.device import largest_batch
    from lensbox.runtime.file.archive import read_file
    from lensbox.runtime.loading import load_artifact, load_artifact_bytes

    tiles = None if question.tiles is None else tile_spec(question.tiles)
    is_shipped = path is None
    path = shipped_artifact() if path is None else path
    if is_shipped and public_key is None and not ops:
        artifact = load_artifact_bytes(read_file(path), str(path), device)
    else:
        artifact = load_artifact(path, device, public_key=public_key, ops=ops)
    if artifact.device.type == "cpu":
        keep_freed_memory()
    size = batch_size or largest_batch(artifact.device)

    def detect(files: Sequence[Path]) -> Results:
        for result in artifact.detect_files(
            files,
            size,
            decode_threads,
            question.score_threshold,
            question.iou_threshold,
            question.orientation,
            tiles,
            decode,
        ):
            if isinstance(result, LensboxError):
                yield result
                continue
            found = detections_to_json(result, artifact.classes)
            # The JSON of a service, so that both kinds of detectors give the same results.
            document = {"width": result.width, "height": result.height, "detections": found}
            yield ImageDetections.from_json(document)

    return _described(detect, json.loads(artifact.metadata.to_json()), question)


def _described(
    detect: Callable[[Sequence[Path]], Results], metadata: Mapping[str, Any], question: Question
) -> Detector:
    """metadata: `lensbox.json`, or the answer of /v1/model."""
    extras = metadata.get("extras", {})
    return Detector(
        detect,
        tuple(metadata.get("classes", ())),
        tuple(name for name, extra in extras.items() if extra["kind"] == "points"),
        question.orientation or metadata.get("reading", {}).get("orientation", "exif"),
    )
