"""Loading an artifact's exported program: the graph of `detect`, with `lensbox.json` beside it."""

import io
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from lensbox.artifact.metadata import ArtifactMetadata
from lensbox.common.errors import ArtifactError, DeviceError
from lensbox.runtime.artifact import Artifact
from lensbox.runtime.detect_only_loading import by_name, detect_only_artifact, read_stored
from lensbox.runtime.device import named_device
from lensbox.runtime.op_library import require_ops
from lensbox.runtime.program_file import parse_program
from lensbox.runtime.quiet_export import quiet_export


def load_program(
    data: bytes, entries: Mapping[str, bytes], name: str, device_name: str, trusted: bool
) -> Artifact:
    """Loads an artifact from the content of an exported program, and its entries; errors call it `name`.

    device_name: "auto" for the CPU. Raises ArtifactError if the file was not written by Lensbox, is not
    trusted or cannot be read by this torch, and where an operator is missing; DeviceError for another device
    than the CPU.
    """
    metadata = read_program_metadata(entries, name)
    if not trusted:
        raise ArtifactError(
            f"{name} is an exported program, whose reader in torch unpickles what it finds, and so may run "
            "code with all your rights. If you would run any program of those who made the file, load it as "
            "trusted (trusted=True, --trusted)"
        )
    device = named_device("cpu" if device_name == "auto" else device_name)
    if device.type != "cpu":
        raise DeviceError(f"device must be cpu for an exported program, got {device} for {name}")
    require_ops(name, metadata.ops)
    program = _ProgramModel(_module_of(data, name, metadata), metadata.outputs)
    return detect_only_artifact(program.run, metadata, device)


def read_program_metadata(entries: Mapping[str, bytes], name: str) -> ArtifactMetadata:
    """The metadata of an exported program with these entries, which torch does not see. Raises
    ArtifactError."""
    try:
        text = parse_program(entries)
    except ValueError as error:
        raise ArtifactError(f"{name} {error}") from error
    return read_stored(text, name)


class _ProgramModel:
    """The graph of `detect`; `run` may be called from several threads at once."""

    def __init__(self, module: Callable[..., Sequence[Tensor]], outputs: Sequence[str]) -> None:
        self._module = module
        self._outputs = tuple(outputs)

    def run(self, images: Tensor, score_threshold: float, iou_threshold: float) -> Mapping[str, Tensor]:
        """What `detect` finds, by name. Raises ArtifactError if it gives not as many outputs as it should."""
        thresholds = [torch.tensor(value, dtype=torch.float32) for value in (score_threshold, iou_threshold)]
        return by_name(self._module(images, *thresholds), self._outputs)


def _module_of(data: bytes, name: str, metadata: ArtifactMetadata) -> Callable[..., Sequence[Tensor]]:
    try:
        with quiet_export():
            module: Callable[..., Sequence[Tensor]] = torch.export.load(io.BytesIO(data)).module()
    except Exception as error:  # torch's own, which are many
        raise ArtifactError(
            f"{name} cannot be loaded by torch {torch.__version__}, it was written by torch "
            f"{metadata.torch_version}: {error}"
        ) from error
    return module
