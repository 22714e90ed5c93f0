"""The files of one export, in each format asked for: all are made, and have proven themselves, before one is
written."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from lensbox.artifact.metadata import ArtifactMetadata
from lensbox.common.errors import ArtifactError
from lensbox.export.artifact_writer import checked_for_export, make_artifact
from lensbox.export.parity import ParityOptions, Reference
from lensbox.export.parity_report import parity_report
from lensbox.export.precision import PrecisionOptions, describe_change
from lensbox.model import Detector, FaceDetector

_logger = logging.getLogger(__name__)

_ONNX = ("onnx", "onnxruntime", "onnxscript")
_COMPARED = {
    "torchscript",
    "aoti",
    "onnx",
    "program",
}  # with the detector in every runtime; the others prove themselves
_PACKAGES = {"onnx": _ONNX, "triton": (*_ONNX, "grpc", "tritonclient")}


def make_files(
    detector: Detector,
    paths: Mapping[str, Path],
    thresholds: tuple[float | None, float | None],
    precision: PrecisionOptions,
    carried_ops: Sequence[Path],
    parity: ParityOptions | None = None,
    plain_ops: bool = False,
) -> tuple[dict[Path, bytes], str]:
    """The content of each file, and their comparison with the detector as Markdown.

    paths: by format, of which there are "torchscript", "aoti", "onnx", "program", "onnx-network" and
    "triton", whose path is a folder; for all but the first two the precision must be float32. thresholds: of
    scores and IoU, None for the detector's. parity: where they are compared, None for nowhere. plain_ops: of
    the program. The other arguments and the errors are those of `save_artifact`, `save_aoti`, `save_onnx` and
    `save_program`.
    """
    _require_packages(paths)
    files: dict[Path, bytes] = {}
    described: dict[Path, ArtifactMetadata] = {}
    reference = None
    if parity is not None and paths.keys() & _COMPARED:
        _logger.info("asking the detector, in PyTorch, what its files have to find")
        checked, (score, overlap) = checked_for_export(detector, *thresholds)
        # Lower than the default, to find more, but in float32 alone: others move low scores further.
        least = score / 10 if precision.dtype == "float32" else score
        reference = Reference(checked, (least, overlap), parity)
    if "torchscript" in paths:
        path = paths["torchscript"]
        files[path], described[path] = make_artifact(
            detector, str(path), *thresholds, precision, carried_ops, reference
        )
        _report(path, files[path], described[path])
    if "aoti" in paths:
        from lensbox.export.aoti_writer import make_aoti  # the compiler, which takes seconds to import

        same, path = next(iter(described.values()), None), paths["aoti"]
        files[path], described[path] = make_aoti(detector, str(path), *thresholds, precision, same, reference)
        _report(path, files[path], described[path])
    if "onnx" in paths:
        from lensbox.export.onnx_writer import make_onnx  # needs packages that TorchScript does without

        same, path = next(iter(described.values()), None), paths["onnx"]
        files[path], described[path] = make_onnx(
            detector, str(path), *thresholds, precision.pictures, same, reference
        )
        _report(path, files[path], described[path])
    if "program" in paths:
        from lensbox.export.program_writer import make_program  # torch.export, which no other needs here

        same, path = next(iter(described.values()), None), paths["program"]
        files[path], described[path] = make_program(
            detector, str(path), *thresholds, precision.pictures, plain_ops, same, reference
        )
        _report(path, files[path], described[path])
    if "onnx-network" in paths:
        from lensbox.export.onnx_network import onnx_network

        alone = checked_for_export(detector, *thresholds)[0]
        if not isinstance(alone, FaceDetector):
            raise ArtifactError(
                "a network alone can be exported of the face detector, whose raw predictions are known, "
                f"got {type(detector).__name__}: --format onnx takes any detector"
            )
        files[paths["onnx-network"]] = onnx_network(alone)
    if "triton" in paths:
        from lensbox.export.triton_repository.files import make_repository

        files |= make_repository(detector, paths["triton"], *thresholds, precision.pictures)
    return files, "" if reference is None else parity_report(described, reference)


def _require_packages(formats: Iterable[str]) -> None:
    """Before anything is computed. Raises ArtifactError."""
    for name in formats:
        extra = name.split("-")[0]
        missing = [package for package in _PACKAGES.get(extra, ()) if find_spec(package) is None]
        if missing:
            raise ArtifactError(
                f"--format {name} needs the Python packages {', '.join(missing)}: "
                f"pip install 'lensbox[{extra}]'"
            )


def _report(path: Path, content: bytes, metadata: ArtifactMetadata) -> None:
    _logger.info(
        "%s: %d bytes, torch %s, weights %s, self-test with %d detections passed",
        path,
        len(content),
        metadata.torch_version,
        metadata.weights_sha256[:12],
        len(metadata.self_test.scores),
    )
    for row in metadata.parity:
        _logger.info(
            "%s on %s in batches of %d: boxes within %.2g px and scores within %.2g of PyTorch's, %.3g ms",
            row.runtime,
            row.device,
            row.batch,
            row.boxes,
            row.scores,
            row.milliseconds,
        )
    if metadata.precision is not None:
        _logger.info("%s", describe_change(metadata.precision))
