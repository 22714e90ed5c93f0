"""Exported programs: the graph of `detect` as torch.export has it."""

import contextlib
import io
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch import Tensor

from lensbox.artifact.archive import ArtifactFile
from lensbox.common.errors import ArtifactError, DeviceError
from lensbox.runtime.artifact import Artifact
from lensbox.runtime.device import named_device
from lensbox.runtime.formats.detect_only import by_name, detect_only_artifact
from lensbox.runtime.op_library import require_ops


@contextlib.contextmanager
def quiet_export() -> Iterator[None]:
    """Silence torch's warnings about itself in calls of torch.export.

    Not thread-safe: all threads share Python's warning filters.
    """
    with warnings.catch_warnings():
        # torch 2.11 to 2.13 use a class of their own that they have deprecated.
        warnings.filterwarnings("ignore", r"`isinstance\(treespec, LeafSpec\)`", FutureWarning)
        # torch 2.11 makes tensors of bytes that it then only reads.
        warnings.filterwarnings("ignore", "The given buffer is not writable", UserWarning)
        yield


def load_program(file: ArtifactFile, device_name: str) -> Artifact:
    """Load an exported program; torch unpickles parts of it. device_name: "auto" for the CPU.

    Raises ArtifactError if torch cannot read the file or an operator is missing; DeviceError for another
    device than the CPU.
    """
    device = named_device("cpu" if device_name == "auto" else device_name)
    if device.type != "cpu":
        raise DeviceError(f"device must be cpu for an exported program, got {device} for {file.name}")
    require_ops(file.name, file.metadata.ops)
    program = ProgramModel(_module_of(file), file.metadata.outputs)
    return detect_only_artifact(program.run, file.metadata, device)


class ProgramModel:
    """The graph of `detect`; `run` may be called from several threads at once."""

    def __init__(self, module: Callable[..., Sequence[Tensor]], outputs: Sequence[str]) -> None:
        self._module = module
        self._outputs = tuple(outputs)

    def run(self, images: Tensor, score_threshold: float, iou_threshold: float) -> Mapping[str, Tensor]:
        """Return what `detect` finds, by name. Raises ArtifactError for another number of outputs."""
        thresholds = [torch.tensor(value, dtype=torch.float32) for value in (score_threshold, iou_threshold)]
        return by_name(self._module(images, *thresholds), self._outputs)


def _module_of(file: ArtifactFile) -> Callable[..., Sequence[Tensor]]:
    try:
        with quiet_export():
            module: Callable[..., Sequence[Tensor]] = torch.export.load(io.BytesIO(file.data)).module()
    except Exception as error:  # torch's own, which are many
        raise ArtifactError(
            f"{file.name} cannot be loaded by torch {torch.__version__}, it was written by torch "
            f"{file.metadata.torch_version}: {error}"
        ) from error
    return module
