"""onnxruntime, as this benchmark uses it."""

from pathlib import Path
from typing import TYPE_CHECKING

from lensbox.bench.detector.subject import Subject
from lensbox.bench.peers.peer import UnavailableError

if TYPE_CHECKING:
    import onnxruntime


def open_session(path: Path, threads: int, profile: Path | None = None) -> "onnxruntime.InferenceSession":
    """A session on the CPU with that many threads.

    profile: how the name of the file begins to which a profile is written, or None for no profile.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    if profile is not None:
        options.enable_profiling = True
        options.profile_file_prefix = str(profile)
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def exported_network(subject: Subject) -> Path:
    """The detector's network as an ONNX file, exported on first use. Raises UnavailableError."""
    try:
        from lensbox.export.onnx_network import save_onnx_network
    except ModuleNotFoundError as error:
        raise missing_package(error) from error
    if not subject.network_file.exists():
        save_onnx_network(subject.detector, subject.network_file)
    return subject.network_file


def exported_detector(subject: Subject) -> Path:
    """The whole detector as an ONNX file, exported on first use. Raises UnavailableError."""
    try:
        from lensbox.export.onnx_writer import save_onnx
    except ModuleNotFoundError as error:
        raise missing_package(error) from error
    if not subject.onnx_file.exists():
        save_onnx(subject.detector, subject.onnx_file)
    return subject.onnx_file


def missing_package(error: ModuleNotFoundError) -> UnavailableError:
    return UnavailableError(
        f"the Python package {error.name!r} is not installed; pip install 'lensbox[onnx]' brings it"
    )
