"""AOTInductor packages: machine code of `detect`, loaded by torch's own loader."""

import contextlib
import os
import threading
from collections.abc import Sequence

import torch
from torch import Tensor

from lensbox.common.errors import ArtifactError
from lensbox.common.files import temporary_folder
from lensbox.runtime.detect.artifact import Artifact
from lensbox.runtime.device import named_device, require_machine
from lensbox.runtime.file.archive import MODEL, ArtifactFile
from lensbox.runtime.formats.detect_only import DetectOnlyMethods, Run, detect_of_graph
from lensbox.runtime.op_library import require_ops

# Concurrent calls on the CPU, which share the weights; further calls wait.
_MAX_CALLS = 8
# torch unpacks a package below TMPDIR. Errors without such a folder, and of a file system without programs.
_UNPACKING = ("temporary directory", "failed to map segment")
_TMPDIR = ". TMPDIR must name a folder that can be written, and whose programs may run"


def load(file: ArtifactFile, device_name: str) -> Artifact:
    """Load a package; loading runs its code. device_name: "auto" for the device of the package.

    Raise ArtifactError if the package was compiled for another machine or torch, or an operator is missing;
    DeviceError for another kind of device than the package's.
    """
    compiled = file.metadata.compiled
    assert compiled is not None  # `open_file` checks it
    device = named_device(compiled.device if device_name == "auto" else device_name)
    require_machine(file.name, compiled, device)
    require_ops(file.name, file.metadata.ops)
    run = _compiled_detect(file, device)
    return Artifact(DetectOnlyMethods(run, file.metadata, device), file.metadata, device)


def _compiled_detect(file: ArtifactFile, device: torch.device) -> Run:
    """Return the compiled code, which checks nothing; thread-safe. Raise ArtifactError.

    The package is written to a private temporary folder, as the loader reads only files. On a GPU the loader
    runs in single-threaded mode, with a lock around each call: in its other mode it queries events of earlier
    runs, which cannot be captured in a CUDA graph.
    """
    single = device.type == "cuda"
    turn = threading.Lock() if single else contextlib.nullcontext()
    index = -1 if not single else torch.cuda.current_device() if device.index is None else device.index
    calls = 1 if single else min(_MAX_CALLS, os.cpu_count() or 1)
    with temporary_folder() as folder:
        path = folder / "detector.pt2"
        path.write_bytes(file.data)
        try:
            loader = torch._C._aoti.AOTIModelPackageLoader(str(path), MODEL, single, calls, index)
        except Exception as error:  # the linker's and torch's errors have no common base
            hint = _TMPDIR if any(word in str(error) for word in _UNPACKING) else ""
            raise ArtifactError(
                f"{file.name} cannot be loaded on {device} by torch {torch.__version__}: {error}{hint}"
            ) from error

    def call(inputs: list[Tensor]) -> Sequence[Tensor]:
        with turn:
            found: Sequence[Tensor] = loader.boxed_run(inputs)
        return found

    return detect_of_graph(call, file.metadata.outputs)
