"""AOTInductor packages: `detect` compiled for one kind of device; the fastest format on a GPU."""

import contextlib
import io
import logging
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, fx, nn

from lensbox.common.errors import ArtifactError
from lensbox.common.files import temporary_folder
from lensbox.export.detector.copies import in_precision
from lensbox.export.detector.graph import custom_ops, innermost_reason, quiet_export, trace_detect
from lensbox.export.detector.passes import expand_depthwise, lay_out
from lensbox.export.detector.wrapper import needed_ops, omitted_methods
from lensbox.export.plan import Built, ExportPlan
from lensbox.model import Detector
from lensbox.runtime.device import this_machine
from lensbox.runtime.file.archive import MODEL
from lensbox.runtime.file.metadata import METADATA_FILE, ArtifactMetadata
from lensbox.runtime.file.seal import sealed_zip

_logger = logging.getLogger(__name__)

_THREADS = 8  # loops are divided for this many threads
_REPORT_SECONDS = 15.0


def build(plan: ExportPlan) -> Built:
    """Compile the detector's graph for the plan's device.

    Raise ArtifactError if there is no C++ compiler, if torch.export or AOTInductor fails, or if the
    detector's `preprocess` or `restore` differs from Lensbox's.
    """
    options = plan.options
    if options.dtype == "tf32" and plan.device.type != "cuda":
        raise ArtifactError(f"tf32 must be compiled for a GPU, got the device {plan.device}")
    require_compiler()
    omitted = omitted_methods(plan.network, "a package")
    files, ops = _compile_detect(plan)
    return Built(
        pack=partial(_pack, files),
        omitted=omitted,
        ops=needed_ops(ops, omitted),
        devices=(plan.device.type,),
        compiled=this_machine(plan.device),
        batch=plan.batch,
    )


def _compile_detect(plan: ExportPlan) -> tuple[list[str], list[str]]:
    """Compile `detect` for the plan's device; return the files, and the schemas of operators to register."""
    device = plan.device
    _logger.info("compiling the detector for %s, which takes minutes", device)
    network = cast(nn.Module, in_precision(plan.network, plan.options.dtype, plan.batch)).to(device)
    program = trace_detect(cast(Detector, network), plan.thresholds, device, plan.batch, torch.float64)
    module = program.module(check_guards=False)  # a copy for the passes
    assert isinstance(module, fx.GraphModule)
    on_gpu = device.type == "cuda"
    lay_out(module, torch.channels_last if on_gpu else torch.contiguous_format)
    if on_gpu:
        expand_depthwise(module)
    return compile_graph(module, program.example_inputs[0]), custom_ops(module)


def require_compiler() -> None:
    """Raise ArtifactError if there is no C++ compiler, before anything is computed."""
    from torch._inductor.cpp_builder import get_cpp_compiler

    try:
        get_cpp_compiler()
    except Exception as error:  # torch raises several kinds
        raise ArtifactError(
            "--format aoti needs a C++ compiler: g++, or the program in the environment variable CXX: "
            f"{innermost_reason(error)}"
        ) from error


def compile_graph(graph_module: fx.GraphModule, inputs: Sequence[Tensor]) -> list[str]:
    """Compile a graph for the device of its parameters and this machine's processor; return the files.

    inputs: examples. Whether a GPU uses TF32 is compiled in: `set_gpu_float32`. Raise ArtifactError.
    """
    on_gpu = inputs[0].device.type == "cuda"
    options = {
        "aot_inductor.package": True,
        # On a CPU: pack weights for oneDNN and fuse activations into convolutions. (With channels-last
        # weights, torch 2.13 then computes wrong results without an error.)
        "freezing": not on_gpu,
        # Use the number of threads of the running process, not of the compiling process.
        "cpp.dynamic_threads": True,
        "cpp.threads": _THREADS,
    }
    try:
        with quiet_export(), torch.no_grad(), _reports():
            # On a GPU the compiler advises TF32; the caller has decided already.
            warnings.filterwarnings("ignore", "TensorFloat32 tensor cores", UserWarning)
            files: Any = torch._inductor.aot_compile(graph_module, tuple(inputs), options=options)
    except Exception as error:  # many kinds of errors without a common base
        raise ArtifactError(f"AOTInductor cannot compile the detector: {_first_error(error)}") from error
    return [file for file in files if isinstance(file, str)]


@contextlib.contextmanager
def _reports() -> Iterator[None]:
    """Log from time to time that the compiler still works."""
    ended = threading.Event()
    began = time.monotonic()

    def report() -> None:
        while not ended.wait(_REPORT_SECONDS):
            _logger.info("still compiling, after %.0f s", time.monotonic() - began)

    thread = threading.Thread(target=report, name="lensbox-reports", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _pack(files: Sequence[str], metadata: ArtifactMetadata) -> bytes:
    """Return the sealed archive of a compiled model, without sources, which hold paths of this machine."""
    from torch.export.pt2_archive._package import package_pt2

    archive = io.BytesIO()
    with temporary_folder() as folder:
        kept: list[Any] = [_without_source(Path(file), folder) for file in files]
        package_pt2(archive, aoti_files={MODEL: kept}, extra_files={METADATA_FILE: metadata.to_json()})
    return sealed_zip(archive.getvalue())


def _without_source(file: Path, folder: Path) -> str:
    """Return the file, or a placeholder for a source, whose name torch's loader needs."""
    if file.suffix != ".cpp":
        return str(file)
    empty = folder / file.name
    empty.write_text("// The source is not part of the package.\n", encoding="utf-8")
    return str(empty)


def _first_error(error: BaseException) -> str:
    """Return the first error of the C++ compiler's output, or the innermost reason, on one line."""
    text = str(error)
    lines = [line.strip() for line in text.splitlines() if "error:" in line]
    return lines[0] if lines else innermost_reason(error)
