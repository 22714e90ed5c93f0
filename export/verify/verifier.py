"""Verify that a file finds the same as its detector in each runtime, on each device and in batches."""

import contextlib
import json
import logging
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from lensbox.common.errors import ArtifactError
from lensbox.common.files import temporary_folder
from lensbox.export.options import ExportOptions
from lensbox.export.verify.comparer import Comparer, found_in_batches
from lensbox.export.verify.reference import Reference, one_thread
from lensbox.model.protocol_check import Answer
from lensbox.ops import library_path
from lensbox.runtime.detect.artifact import Artifact
from lensbox.runtime.detect.detection import detections_of_json
from lensbox.runtime.file.archive import looks_like_onnx
from lensbox.runtime.file.metadata import ArtifactMetadata
from lensbox.runtime.loading import load_artifact_bytes

_logger = logging.getLogger(__name__)

_OTHER_BATCH = 7  # batch size for further thresholds
# Some versions of AOTInductor moved boxes without an error, for some layouts and sizes.
_COMPILED_BATCH = 256
_TIMEOUT = 600  # seconds of a run of the runner


def verify(
    content: bytes,
    name: str,
    metadata: ArtifactMetadata,
    reference: Reference,
    options: ExportOptions,
    *,
    devices: Sequence[str] = ("cpu",),
) -> None:
    """Load a file, run its self-test and compare it with its detector.

    name: the file's name in errors. devices: to compare on. Raise ArtifactError if the detections differ.
    """
    dtype = metadata.precision.dtype if metadata.precision else "float32"
    runner = _runner_for(content, name, options.runner)
    with one_thread():
        for device in devices:
            artifact = load_artifact_bytes(content, name, device)
            with running(name, device):
                report = artifact.self_test()
            if not report.passed:
                raise ArtifactError(f"{name} fails its self-test: {'; '.join(report.failures)}")
            _require_dtypes(artifact.detect(reference.canvases[:1]), metadata, name)
            where = f"{name} with Python on {device}"
            comparer = Comparer(reference, dtype, device, options.tolerance, where)
            _in_python(artifact, comparer)
            comparer.report()
            if runner is not None:
                where = f"{name} with C++ on {device}"
                comparer = Comparer(reference, dtype, device, options.tolerance, where)
                _in_cpp(runner, content, options.ops, metadata, comparer)
                comparer.report()


@contextlib.contextmanager
def running(name: str, device: str) -> Iterator[None]:
    """Turn errors of a file's code into ArtifactError, with their reason. name: the file's name."""
    try:
        yield
    except ArtifactError:
        raise
    except (RuntimeError, ValueError) as error:
        reason = str(error).split("\nException raised from")[0].strip()  # without torch's C++ stack
        if "TorchScript interpreter" in reason:  # a traceback of serialized code; the last line is the reason
            reason = reason.splitlines()[-1]
        raise ArtifactError(f"{name} cannot be run on {device}: {reason}") from error


def _require_dtypes(answer: Answer, metadata: ArtifactMetadata, name: str) -> None:
    dtypes = {output: str(value.dtype).removeprefix("torch.") for output, value in answer.items()}
    wanted = {output: metadata.output[output]["dtype"] for output in metadata.outputs}
    if dtypes != wanted:
        raise ArtifactError(f"{name} must have outputs of the dtypes {wanted}, got {dtypes}")


def _runner_for(content: bytes, name: str, runner: Path | None) -> Path | None:
    if runner is None:
        return None
    runner = runner.absolute()  # a bare name would be searched in PATH
    if looks_like_onnx(content) and ", onnxruntime " not in _output_of(runner, "--version"):
        _logger.info("%s is not compared in C++: %s has no onnxruntime", name, runner)
        return None
    return runner


def _in_python(artifact: Artifact, comparer: Comparer) -> None:
    """Compare in all batch sizes, and at further thresholds in one."""
    reference, metadata = comparer.reference, artifact.metadata
    if "loss" in metadata.methods:
        comparer.require_loss(artifact.loss(reference.predictions, reference.targets))
    score, iou = reference.thresholds
    sizes = [*reference.batches, *([_COMPILED_BATCH] if metadata.compiled else [])]
    batches = {reference.thresholds: sizes, (score, iou / 2): [_OTHER_BATCH]}
    batches.setdefault(metadata.thresholds, [_OTHER_BATCH])
    for thresholds, sizes in batches.items():
        for batch in sizes:
            found = found_in_batches(artifact.detect, reference, thresholds, batch)
            comparer.compare(reference.found(thresholds), found, thresholds, batch)


def _in_cpp(
    runner: Path, content: bytes, ops: Sequence[Path], metadata: ArtifactMetadata, comparer: Comparer
) -> None:
    """Compare the answers of `lensbox_runner`, for which the canvases are photographs.

    ops: op libraries in addition to Lensbox's.
    """
    reference = comparer.reference
    with temporary_folder() as folder:
        (folder / "artifact").write_bytes(content)
        common = ["--artifact", folder / "artifact", "--device", comparer.device]
        for library in (library_path(), *ops):
            common += ["--ops", library.absolute()]

        def answer(command: str, *options: object) -> Any:
            return json.loads(_output_of(runner, command, *common, *options))

        if "loss" in metadata.methods:
            options: list[object] = []
            for name in ("predictions", "targets"):
                options += [f"--{name}", folder / f"{name}.json"]
                (folder / f"{name}.json").write_text(json.dumps(getattr(reference, name).tolist()))
            comparer.require_loss(float(answer("loss", *options)["loss"]))
        images = [folder / f"{index:04}.png" for index in range(len(reference.canvases))]
        for image, canvas in zip(images, reference.canvases, strict=True):
            pixels = canvas[0] if len(canvas) == 1 else canvas.permute(1, 2, 0)
            Image.fromarray(pixels.contiguous().numpy()).save(image, compress_level=1)
        expected, thresholds = reference.found_in_photographs(), reference.thresholds
        for batch in reference.batches:
            score, iou = ("--score-threshold", thresholds[0]), ("--iou-threshold", thresholds[1])
            answers = answer("detect", *score, *iou, "--batch", batch, "--image", *images)["images"]
            found = [detections_of_json(image, metadata.classes) for image in answers]
            comparer.compare(expected, found, thresholds, batch)


def _output_of(runner: Path, command: str, *options: object) -> str:
    """Run the runner and return its output. Raise ArtifactError if it fails."""
    line = [str(runner), command, *map(str, options)]
    try:
        done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=_TIMEOUT)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ArtifactError(f"the file cannot be compared with {runner}: {error}") from error
    if done.returncode != 0:
        reason = done.stderr.strip() or f"exit code {done.returncode}"
        raise ArtifactError(f"{runner} {command} failed: {reason}")
    return done.stdout
