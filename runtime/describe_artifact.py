"""What an artifact's file is, in names and values."""

import hashlib
from collections.abc import Iterator

from lensbox.artifact.metadata import ArtifactMetadata
from lensbox.runtime.artifact_loading import kind_of_file, read_metadata


def describe_artifact(data: bytes, name: str) -> list[tuple[str, str]]:
    """Names and values, in the order in which they are shown. Raises ArtifactError, which calls the file
    `name`, if the content is that of no artifact."""
    metadata = read_metadata(data, name)
    return [
        ("file", f"{name}, {len(data)} bytes"),
        ("format", _format(data, metadata)),
        ("sha256", hashlib.sha256(data).hexdigest()),
        ("detector", metadata.name),
        ("weights", metadata.weights_sha256),
        ("written by", f"lensbox {metadata.lensbox_version}, torch {metadata.torch_version}"),
        *_answers(metadata),
        ("operators", ", ".join(schema.split("(")[0] for schema in metadata.ops) or "none of a library's"),
        *_machine(metadata),
        *(("carries", f"{library.name} for {library.platform}") for library in metadata.libraries),
        ("self-test", f"{len(metadata.self_test.scores)} detections"),
        *_parity(metadata),
    ]


def stored_metadata(data: bytes, name: str) -> str:
    """`lensbox.json`, of whatever format. Raises ArtifactError as `describe_artifact` does."""
    return read_metadata(data, name).to_json()


def _format(data: bytes, metadata: ArtifactMetadata) -> str:
    kind = {
        "torchscript": "TorchScript",
        "onnx": "ONNX (detect alone)",
        "aoti": "AOTInductor package (detect alone, machine code)",
        "program": f"exported program (detect alone, {'' if metadata.ops else 'plain '}operators)",
    }[kind_of_file(data)]
    return f"{kind}, metadata of format {metadata.format_version}"


def _machine(metadata: ArtifactMetadata) -> Iterator[tuple[str, str]]:
    """What machine code was compiled for."""
    if metadata.compiled is None:
        return
    made = metadata.compiled
    words = [made.device, made.gpu_architecture, made.platform, f"torch {made.torch_version}"]
    yield "compiled for", ", ".join(word for word in words if word)
    yield "processor with", " ".join(made.cpu_features)


def _answers(metadata: ArtifactMetadata) -> Iterator[tuple[str, str]]:
    """What it takes and finds."""
    canvas = metadata.canvas
    yield "canvas", f"{canvas.width} x {canvas.height}, {'gray' if canvas.channels == 1 else 'RGB'}"
    yield "photographs", f"orientation {metadata.reading.orientation}"
    yield "thresholds", f"score {metadata.score_threshold:g}, IoU {metadata.iou_threshold:g}"
    yield "methods", ", ".join(metadata.methods)
    if metadata.classes:
        yield "classes", f"{len(metadata.classes)}: {', '.join(metadata.classes)}"
    for name, extra in metadata.extras.items():
        yield "output", f"{name} {list(extra.shape)}, {extra.kind}"
    yield "precision", metadata.precision.dtype if metadata.precision else "float32"


def _parity(metadata: ArtifactMetadata) -> Iterator[tuple[str, str]]:
    """How near it came to the detector when it was written."""
    for runtime, device in dict.fromkeys((row.runtime, row.device) for row in metadata.parity):
        rows = [row for row in metadata.parity if (row.runtime, row.device) == (runtime, device)]
        yield (
            f"parity, {runtime} on {device}",
            f"boxes within {max(row.boxes for row in rows):.2g} px and scores within "
            f"{max(row.scores for row in rows):.2g} of PyTorch's, in batches of "
            f"{', '.join(str(row.batch) for row in rows)}",
        )
