"""Writes the exported program of a detector: the graph that compilers of torch's world start from."""

import dataclasses
import io
import logging
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, fx
from torch.export import ExportedProgram

from lensbox.artifact.metadata import METADATA_FILE, ArtifactMetadata
from lensbox.artifact.seal import sealed_zip
from lensbox.common.errors import ArtifactError
from lensbox.common.files import atomic_write
from lensbox.export.artifact_writer import MadeArtifact, checked_for_export, describe
from lensbox.export.detect_graph import DetectGraph, TensorThresholds, example_canvases
from lensbox.export.detect_only import detect_only_metadata, methods_left_behind, needed_ops
from lensbox.export.detect_proof import prove
from lensbox.export.graph_passes import custom_ops
from lensbox.export.graph_tracer import in_core_aten, traced_detect
from lensbox.export.parity import Reference, compare_with_detector
from lensbox.export.plain_nms import PlainNms
from lensbox.export.proof_canvases import BATCHES
from lensbox.export.self_test_builder import one_thread
from lensbox.model import Detector
from lensbox.runtime.formats.program import quiet_export
from lensbox.runtime.loading import load_artifact_bytes

_logger = logging.getLogger(__name__)

_CHECK = torch.ops.aten._assert_tensor_metadata.default  # of what the tracer saw, and none of Core ATen


def save_program(
    detector: Detector,
    path: str | Path,
    score_threshold: float | None = None,
    iou_threshold: float | None = None,
    pictures: Sequence[Tensor] = (),
    plain_ops: bool = False,
) -> ArtifactMetadata:
    """Writes a detector's `detect`, as `torch.export` has it, as a file that describes and tests itself.

    Inputs: canvases, uint8 [batch, c, h, w], and thresholds of scores and IoU, float32 []; the outputs are a
    tuple of those of `detect`, in the order of the metadata's `outputs`. The operators are those of Core
    ATen, into which torch decomposes others, and beside them Lensbox's and the detector's; with plain_ops
    there are none of these, so that the file loads where torch alone is installed. pictures: uint8 [C, H, W],
    on which the file has to prove itself, too.

    Before the file is written it is loaded back, and must find what the detector finds (see `detect_proof`).
    Raises what `save_artifact` raises; ArtifactError also for a detector of which torch.export makes no
    graph, with a `preprocess` or `restore` unlike Lensbox's, and with plain_ops where it has operators that
    are not torch's.
    """
    made = make_program(detector, str(path), score_threshold, iou_threshold, pictures, plain_ops)
    atomic_write(path, made.content)
    return made.metadata


def make_program(
    detector: Detector,
    name: str,
    score_threshold: float | None = None,
    iou_threshold: float | None = None,
    pictures: Sequence[Tensor] = (),
    plain_ops: bool = False,
    described: ArtifactMetadata | None = None,
    reference: Reference | None = None,
) -> MadeArtifact:
    """The file that `save_program` writes; errors call it `name`.

    described: the metadata of another file of the detector in float32, where there is one: then both have the
    same self-test. reference: as for `make_artifact`.
    """
    detector, thresholds = checked_for_export(detector, score_threshold, iou_threshold)
    left_behind = methods_left_behind(detector, "an exported program")
    _logger.info("making a graph of the detector")
    program = _program(detector, thresholds, plain_ops)
    called = custom_ops(program.graph_module)
    if plain_ops and called:
        raise ArtifactError(
            "--plain-ops has no form in torch's own operators of "
            f"{', '.join(schema.split('(')[0] for schema in called)}; of Lensbox's own, lensbox::padded_nms "
            "has one"
        )
    ops = needed_ops(called, left_behind) if called else ()
    metadata = detect_only_metadata(described or describe(detector, thresholds), left_behind, ops)
    content = _written(program, metadata)
    _logger.info("loading the program back and comparing it with the detector")
    with one_thread():
        artifact = load_artifact_bytes(content, name)
        agreement = prove(detector, artifact, pictures, "exported program")
    _logger.info("the program finds what PyTorch finds: %s", agreement.describe(BATCHES))
    if reference is not None:
        rows = compare_with_detector(content, name, metadata, reference, ["cpu"], runs_in_cpp=False)
        metadata = dataclasses.replace(metadata, parity=rows)
        content = _written(program, metadata)
    return MadeArtifact(content, metadata)


def _program(detector: Detector, thresholds: tuple[float, float], plain_ops: bool) -> ExportedProgram:
    graph = DetectGraph(detector, PlainNms if plain_ops else TensorThresholds).eval()
    numbers = tuple(torch.tensor(value, dtype=torch.float32) for value in thresholds)
    program = in_core_aten(traced_detect(graph, example_canvases(detector.specification), numbers))
    for module in program.graph_module.modules():
        if isinstance(module, fx.GraphModule):
            _drop_notes(module)
    return program


def _drop_notes(module: fx.GraphModule) -> None:
    """Drops where each node comes from, as those are paths of this machine, and checks of dtypes."""
    for node in list(module.graph.nodes):
        node.meta.pop("stack_trace", None)
        if node.target is _CHECK:
            module.graph.erase_node(node)
    module.recompile()


def _written(program: ExportedProgram, metadata: ArtifactMetadata) -> bytes:
    content = io.BytesIO()
    with quiet_export():
        torch.export.save(program, content, extra_files={METADATA_FILE: metadata.to_json()})
    return sealed_zip(content.getvalue())
