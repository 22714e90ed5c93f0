"""AOTInductor packages: machine code of `detect`, loaded by torch's own loader."""

import contextlib
import os
import threading
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from lensbox.common.errors import ArtifactError
from lensbox.common.files import temporary_folder
from lensbox.runtime.detect.artifact import Artifact
from lensbox.runtime.device import named_device
from lensbox.runtime.file.archive import MODEL, ArtifactFile
from lensbox.runtime.formats.detect_only import by_name, detect_only_artifact
from lensbox.runtime.machine import require_machine
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
    model = AotiModel(file.data, file.name, device, file.metadata.outputs)
    return detect_only_artifact(model.run, file.metadata, device)


class AotiModel:
    """Compiled `detect`. `run` is thread-safe.

    On a GPU the loader runs in single-threaded mode, with a lock around each call: in its other mode it
    queries events of earlier runs, which cannot be captured in a CUDA graph.
    """

    def __init__(self, data: bytes, name: str, device: torch.device, outputs: Sequence[str]) -> None:
        """Write the package to a private temporary folder, as the loader reads only files, and load it.

        outputs: names of the outputs, in the order of the code. Raise ArtifactError.
        """
        self._outputs = tuple(outputs)
        self._device = device
        single = device.type == "cuda"
        self._turn = threading.Lock() if single else contextlib.nullcontext()
        index = -1 if not single else torch.cuda.current_device() if device.index is None else device.index
        with temporary_folder() as folder:
            path = folder / "detector.pt2"
            path.write_bytes(data)
            calls = 1 if single else min(_MAX_CALLS, os.cpu_count() or 1)
            try:
                self._loader = torch._C._aoti.AOTIModelPackageLoader(str(path), MODEL, single, calls, index)
            except Exception as error:  # the linker's and torch's errors have no common base
                hint = _TMPDIR if any(word in str(error) for word in _UNPACKING) else ""
                raise ArtifactError(
                    f"{name} cannot be loaded on {device} by torch {torch.__version__}: {error}{hint}"
                ) from error

    def run(self, images: Tensor, score_threshold: float, iou_threshold: float) -> Mapping[str, Tensor]:
        """Return the outputs by name. images: uint8 [B, c, h, w], contiguous, on the device, with B >= 1.

        The compiled code checks nothing. Raise ArtifactError for another number of outputs.
        """
        thresholds = [
            torch.tensor(value, dtype=torch.float64, device="cpu")
            for value in (score_threshold, iou_threshold)
        ]
        with self._turn:
            found = self._loader.boxed_run([images, *thresholds])
        return by_name(found, self._outputs)
