"""Exported programs: `detect` as a graph of torch.export, from which torch's compilers start."""

import io
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor, fx
from torch.export import ExportedProgram, default_decompositions

from lensbox.artifact.metadata import METADATA_FILE, ArtifactMetadata, Library
from lensbox.artifact.seal import sealed_zip
from lensbox.common.errors import ArtifactError
from lensbox.export.formats.plain_nms import plain_padded_nms
from lensbox.export.graph import NMS, custom_ops, decomposed, nms_as
from lensbox.export.wrapper import methods_left_behind, methods_of, needed_ops
from lensbox.model.protocol_check import Answer
from lensbox.runtime.formats.program import quiet_export

if TYPE_CHECKING:
    from lensbox.export.pipeline import Plan

_CHECK = torch.ops.aten._assert_tensor_metadata.default  # of what the tracer saw, and none of Core ATen


class ProgramModel:
    """The graph of `detect` in operators of Core ATen; see `formats`."""

    devices = ("cpu",)
    more_batches: tuple[int, ...] = ()
    runs_in_cpp = False
    libraries: tuple[Library, ...] = ()
    compiled = None
    converted = None

    def __init__(self, program: ExportedProgram, ops: tuple[str, ...], methods: tuple[str, ...]) -> None:
        self._program = program
        self.ops = ops
        self.methods = methods

    def pack(self, metadata: ArtifactMetadata) -> bytes:
        """Return the content of the file."""
        content = io.BytesIO()
        with quiet_export():
            torch.export.save(self._program, content, extra_files={METADATA_FILE: metadata.to_json()})
        return sealed_zip(content.getvalue())

    def detect(self) -> Callable[[Tensor, float, float], Answer]:
        """Exported programs are in float32 alone, so that nothing is measured."""
        raise NotImplementedError


def build(plan: "Plan") -> ProgramModel:
    """Decompose the detector's graph into Core ATen, beside which it has Lensbox's and its own operators.

    Inputs: canvases, uint8 [batch, c, h, w], and thresholds of scores and IoU, float32 []; the outputs are a
    tuple of those of `detect`, in the order of the metadata's `outputs`. With `plain_ops` there are torch's
    operators alone, so that the file loads where only torch is installed. Raises ArtifactError for a detector
    with a `preprocess` or `restore` unlike Lensbox's, and with `plain_ops` where it has other operators.
    """
    left_behind = methods_left_behind(plan.detector, "an exported program")
    table = default_decompositions()
    plain = plan.options.plain_ops
    if plain:
        table[NMS] = nms_as(plain_padded_nms, "plain operators")
    program = decomposed(plan.program, table)
    for module in program.graph_module.modules():
        if isinstance(module, fx.GraphModule):
            _drop_notes(module)
    called = custom_ops(program.graph_module)
    if plain and called:
        raise ArtifactError(
            "--plain-ops has no form in torch's own operators of "
            f"{', '.join(schema.split('(')[0] for schema in called)}; of Lensbox's own, lensbox::padded_nms "
            "has one"
        )
    ops = needed_ops(called, left_behind) if called else ()
    return ProgramModel(
        program, ops, tuple(name for name in methods_of(plan.detector) if name not in left_behind)
    )


def _drop_notes(module: fx.GraphModule) -> None:
    """Drop where each node comes from, as those are paths of this machine, and checks of dtypes."""
    for node in list(module.graph.nodes):
        node.meta.pop("stack_trace", None)
        if node.target is _CHECK:
            module.graph.erase_node(node)
    module.recompile()
