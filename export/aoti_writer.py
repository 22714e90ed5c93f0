"""Writes the AOTInductor package of a detector: machine code, the fastest file for the GPU it is made on."""

import copy
import dataclasses
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, fx

from lensbox.artifact.archive import MODEL
from lensbox.artifact.metadata import METADATA_FILE, ArtifactMetadata, Canvas
from lensbox.common.errors import ArtifactError
from lensbox.common.files import atomic_write
from lensbox.export.aoti_compiler import compile_graph, package, require_compiler
from lensbox.export.aoti_proof import COMPILED_BATCHES, measure_compiled, prove_compiled
from lensbox.export.artifact_writer import MadeArtifact, checked_for_export, describe
from lensbox.export.detect_graph import DetectGraph, TensorThresholds, example_canvases
from lensbox.export.detect_only import detect_only_metadata, methods_left_behind, needed_ops
from lensbox.export.graph_passes import custom_ops, fold_batch_norms, lay_out, reduce_products
from lensbox.export.graph_tracer import traced_detect
from lensbox.export.parity import Reference, compare_with_detector
from lensbox.export.precision import PrecisionOptions
from lensbox.export.self_test_builder import one_thread
from lensbox.model import Detector
from lensbox.runtime.formats.aoti import AotiModel
from lensbox.runtime.formats.detect_only import DetectOnlyMethods, Run
from lensbox.runtime.gpu_float32 import gpu_float32
from lensbox.runtime.loading import load_artifact_bytes
from lensbox.runtime.machine import this_machine

_logger = logging.getLogger(__name__)


def save_aoti(
    detector: Detector,
    path: str | Path,
    score_threshold: float | None = None,
    iou_threshold: float | None = None,
    precision: PrecisionOptions | None = None,
) -> ArtifactMetadata:
    """Writes a detector's `detect`, compiled by AOTInductor, as a file that describes and tests itself.

    It is for the device of `precision`, its kind of GPU or processor, and this minor version of torch. The
    thresholds are the defaults that it carries, None for the detector's; precision: None for float32 on the
    CPU, whose pictures the file has to prove itself on, too.

    Before the file is written it is loaded back, passes its self-test and finds what the detector finds (see
    `aoti_proof`). Raises what `save_artifact` raises; ArtifactError also where there is no C++ compiler, for
    a detector of which torch.export or AOTInductor make nothing, or with a `preprocess` or `restore` unlike
    Lensbox's.
    """
    made = make_aoti(detector, str(path), score_threshold, iou_threshold, precision)
    atomic_write(path, made.content)
    return made.metadata


def make_aoti(
    detector: Detector,
    name: str,
    score_threshold: float | None = None,
    iou_threshold: float | None = None,
    precision: PrecisionOptions | None = None,
    described: ArtifactMetadata | None = None,
    reference: Reference | None = None,
) -> MadeArtifact:
    """The file that `save_aoti` writes; errors call it `name`.

    described: the metadata of another file of the detector in float32, where there is one: in that precision
    both then have the same self-test. reference: as for `make_artifact`.
    """
    options = precision or PrecisionOptions()
    if options.dtype == "tf32" and options.device.type != "cuda":
        raise ArtifactError(f"tf32 must be compiled for a GPU, got the device {options.device}")
    require_compiler()
    detector, thresholds = checked_for_export(detector, score_threshold, iou_threshold)
    left_behind = methods_left_behind(detector, "a package")
    code = _compiled(detector, thresholds, options)
    if options.dtype == "float32":
        metadata = described or describe(detector, thresholds)
    else:
        _logger.info("measuring what %s changes", options.dtype)
        bare = package({MODEL: code.files}, {})
        run = _from_cpu(AotiModel(bare, name, options.device, code.outputs), options)
        change = measure_compiled(detector, run, options, thresholds)
        converted = None if options.dtype == "tf32" else _methods(detector, run)
        metadata = describe(detector, thresholds, change, converted=converted)
    ops = needed_ops(code.ops, left_behind)
    metadata = detect_only_metadata(metadata, left_behind, ops, this_machine(options.device))
    content = package({MODEL: code.files}, {METADATA_FILE: metadata.to_json()})
    _logger.info("loading the package back and comparing it with the detector")
    artifact = load_artifact_bytes(content, name, options.device)
    report = artifact.self_test()
    if not report.passed:
        raise ArtifactError(f"the compiled code fails its self-test: {'; '.join(report.failures)}")
    if options.dtype == "float32":
        with one_thread():
            agreement = prove_compiled(detector, artifact, options.pictures)
        _logger.info("the compiled code finds what PyTorch finds: %s", agreement.describe(COMPILED_BATCHES))
    if reference is not None:
        rows = compare_with_detector(content, name, metadata, reference, [options.device.type])
        metadata = dataclasses.replace(metadata, parity=rows)
        content = package({MODEL: code.files}, {METADATA_FILE: metadata.to_json()})
    return MadeArtifact(content, metadata)


class _Code(NamedTuple):
    """Compiled `detect`: files, names of its outputs, schemas of the operators that it calls."""

    files: list[str]
    outputs: tuple[str, ...]
    ops: list[str]


def _compiled(detector: Detector, thresholds: tuple[float, float], options: PrecisionOptions) -> _Code:
    _logger.info("compiling the detector for %s, which takes a minute", options.device)
    # On the CPU whatever the device: there they are read without waiting for it.
    numbers = tuple(torch.tensor(value, dtype=torch.float64) for value in thresholds)
    # A copy: what is moved are the parameters themselves, which the graph shares with the module.
    graph = DetectGraph(copy.deepcopy(detector), TensorThresholds).eval().to(options.device)
    inputs = (example_canvases(detector.specification).to(options.device), *numbers)
    module = traced_detect(graph, inputs[0], numbers).module(check_guards=False)
    assert isinstance(module, fx.GraphModule)
    fold_batch_norms(module)
    if options.dtype in ("float16", "bfloat16"):
        reduce_products(module, getattr(torch, options.dtype))
    lay_out(module, torch.channels_last if options.device.type == "cuda" else torch.contiguous_format)
    ops = custom_ops(module)
    return _Code(compile_graph(module, inputs, options.dtype == "tf32"), graph.outputs, ops)


def _from_cpu(model: AotiModel, options: PrecisionOptions) -> Run:
    """The model for canvases on any device, with answers on the CPU."""

    def run(images: Tensor, score_threshold: float, iou_threshold: float) -> Mapping[str, Tensor]:
        with torch.inference_mode(), gpu_float32(options.device, options.dtype == "tf32"):
            found = model.run(images.to(options.device), score_threshold, iou_threshold)
            return {name: value.cpu() for name, value in found.items()}

    return run


def _methods(detector: Detector, run: Run) -> DetectOnlyMethods:
    specification = detector.specification
    canvas = Canvas(specification.height, specification.width, specification.channels, specification.fill)
    return DetectOnlyMethods(run, canvas, torch.device("cpu"))
