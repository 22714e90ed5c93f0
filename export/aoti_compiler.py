"""The one place that talks to AOTInductor's compiler."""

import contextlib
import io
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, fx

from lensbox.artifact.seal import sealed_zip
from lensbox.common.errors import ArtifactError
from lensbox.export.graph_tracer import innermost_reason
from lensbox.export.tf32 import tf32_switch
from lensbox.runtime.formats.program import quiet_export

_THREADS = 8  # for which loops are divided; with 1 they would not be


def require_compiler() -> None:
    """Raises ArtifactError where there is no C++ compiler; before anything is computed."""
    from torch._inductor.cpp_builder import get_cpp_compiler

    try:
        get_cpp_compiler()
    except Exception as error:  # torch's own kinds
        raise ArtifactError(
            "--format aoti needs a C++ compiler, g++ or what the environment variable CXX names: "
            f"{innermost_reason(error)}"
        ) from error


def compile_graph(graph_module: fx.GraphModule, inputs: Sequence[Tensor], tf32: bool) -> list[str]:
    """Compiles a graph for the device of its parameters and this machine's processor; returns the files.

    inputs: examples. tf32: whether products on the GPU may be computed with it. Raises ArtifactError.
    """
    on_gpu = inputs[0].device.type == "cuda"
    options = {
        "aot_inductor.package": True,
        # On a CPU: weights packed as oneDNN computes with them, activations as part of the convolutions.
        # (Weights that are channels last come out wrong then, without a word: torch 2.13.)
        "freezing": not on_gpu,
        # As many threads as the process that runs it has, not the one that compiles it.
        "cpp.dynamic_threads": True,
        "cpp.threads": _THREADS,
    }
    try:
        # Kernels of Triton have TF32 built in; those of cuDNN and cuBLAS read the switch when they run.
        with _quiet_compiler(), torch.no_grad(), tf32_switch(tf32):
            files: Any = torch._inductor.aot_compile(graph_module, tuple(inputs), options=options)
    except Exception as error:  # the compiler has many kinds, and no common one
        raise ArtifactError(f"AOTInductor cannot compile the detector: {_first_error(error)}") from error
    return [file for file in files if isinstance(file, str)]


def package(models: Mapping[str, Sequence[str]], texts: Mapping[str, str]) -> bytes:
    """Return the sealed archive of compiled models, each by its name, and of further files, `extra/NAME`.

    The models' sources stay behind, as they hold paths of this machine.
    """
    from torch.export.pt2_archive._package import package_pt2

    archive = io.BytesIO()
    with TemporaryDirectory(prefix="lensbox-") as folder:
        files: dict[str, list[Any]] = {
            name: [_without_source(Path(file), Path(folder)) for file in compiled]
            for name, compiled in models.items()
        }
        package_pt2(archive, aoti_files=files, extra_files=dict(texts))
    return sealed_zip(archive.getvalue())


def _without_source(file: Path, folder: Path) -> str:
    """The file; of a source, an empty one: torch's loader looks for its name."""
    if file.suffix != ".cpp":
        return str(file)
    empty = folder / file.name
    empty.write_text("// The source is not part of the package.\n", encoding="utf-8")
    return str(empty)


def _first_error(error: BaseException) -> str:
    """What went wrong, on one line; of a C++ compiler's output its first error."""
    text = str(error)
    lines = [line.strip() for line in text.splitlines() if "error:" in line]
    return lines[0] if lines else innermost_reason(error)


@contextlib.contextmanager
def _quiet_compiler() -> Iterator[None]:
    """Silences what the compiler says of torch rather than of the detector. Not thread-safe, as Python's
    warning filters are shared by all threads."""
    with quiet_export():
        # On a GPU it advises TF32, about which the caller has decided.
        warnings.filterwarnings("ignore", "TensorFloat32 tensor cores", UserWarning)
        yield
