"""The steps of an export, the same for every format: check, build, measure, describe, pack, verify, write."""

import copy
import dataclasses
import logging
from collections.abc import Mapping, Sequence
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

import lensbox.ops
from lensbox.artifact.metadata import (
    FORMAT_VERSION,
    ArtifactMetadata,
    Canvas,
    Compiled,
    Extra,
    Library,
    Precision,
    Reading,
    Thresholds,
)
from lensbox.artifact.self_test import SelfTest
from lensbox.common.errors import ArtifactError, InputError
from lensbox.common.files import atomic_write
from lensbox.export.formats.traced import FixedBatches, without_batches
from lensbox.export.graph import output_names, trace_detect
from lensbox.export.verify.precision import describe_change, measure_precision
from lensbox.export.verify.reference import BATCHES, Reference
from lensbox.export.verify.report import parity_report
from lensbox.export.verify.self_test import build_self_test
from lensbox.export.verify.verifier import Runtimes, verify
from lensbox.model import Detector, DetectorSpec, missing, weights_sha256
from lensbox.model.protocol_check import named
from lensbox.model.weights_file import non_finite_weights

_logger = logging.getLogger(__name__)

# The formats that are artifacts: a module for each, with `build`.
ARTIFACTS = ("torchscript", "aoti", "onnx")
_ONNX = ("onnx", "onnxruntime", "onnxscript")
_PACKAGES = {"onnx": _ONNX, "triton": (*_ONNX, "grpc", "tritonclient")}
_QUICK_BATCHES = (1, 7)


@dataclasses.dataclass(frozen=True)
class ExportOptions:
    """Options of an export.

    score_threshold, iou_threshold: the defaults of the files, None for the detector's. dtype: precision of
    convolutions and linear layers, "float32", "tf32", "float16" or "bfloat16". device: where its change is
    measured, and for which aoti compiles. tolerance: largest change of a box, in canvas pixels. pictures:
    uint8 [C, H, W], compared beside drawn ones. carry_picture: whether the self-test holds one of them in
    place of a drawn one. carried_ops: op libraries, loaded already, for the
    TorchScript file. trace: whether to trace `detect` for the TorchScript file, None to trace only what
    TorchScript cannot compile. batches: sizes that the network takes, empty for any; its files cut and fill
    batches, and those that hold one graph, ONNX and AOTInductor, take one size. parity: whether files are
    compared on each device, in C++ and with times, which the metadata then hold. runner: the program
    `lensbox_runner`, None to leave out C++. ops: libraries that the runner needs.
    """

    score_threshold: float | None = None
    iou_threshold: float | None = None
    dtype: str = "float32"
    device: torch.device = torch.device("cpu")  # noqa: RUF009 (immutable)
    tolerance: float = 2.0
    pictures: Sequence[Tensor] = ()
    carry_picture: bool = False
    carried_ops: Sequence[Path] = ()
    trace: bool | None = None
    batches: Sequence[int] = ()
    parity: bool = False
    runner: Path | None = None
    ops: Sequence[Path] = ()


class Model(Protocol):
    """The result of a format's `build`.

    devices: kinds of devices that the file runs on. more_batches: sizes to compare beside the usual ones.
    runs_in_cpp: whether `lensbox_runner` takes the format. ops: schemas of the operators that the file needs;
    libraries: those that it carries; methods: those that it has. compiled: for what machine it is, None for
    any. converted: the detector in a reduced precision, on the CPU with its methods; None for float32.
    batch: the one size of batches that the file takes, None for any.
    """

    devices: tuple[str, ...]
    more_batches: tuple[int, ...]
    runs_in_cpp: bool
    ops: tuple[str, ...]
    libraries: tuple[Library, ...]
    methods: tuple[str, ...]
    compiled: Compiled | None
    converted: Any
    batch: int | None

    def pack(self, metadata: ArtifactMetadata) -> bytes:
        """Return the content of the file, sealed."""

    def detect(self) -> Any:
        """Return `detect` in the plan's precision, of canvases on the CPU."""


class MadeArtifact(NamedTuple):
    """An artifact's file that has proven itself and is not written yet."""

    content: bytes
    metadata: ArtifactMetadata


class Plan:
    """A detector that was checked, and what the formats of one export share, each computed once when needed.

    detector: a copy on the CPU in eval mode: neither the caller's device nor its training mode leaks into
    files. thresholds: the defaults of the files, of scores and IoU.
    """

    def __init__(self, detector: Detector, options: ExportOptions) -> None:
        """Raises ArtifactError for a detector that breaks the protocol, InputError for weights that are not
        finite, and ValueError for thresholds outside 0..1."""
        for name in ("score_threshold", "iou_threshold"):
            value = getattr(options, name)
            if value is not None and not 0 <= value <= 1:
                raise ValueError(f"{name} must be between 0 and 1, got {value}")
        if isinstance(detector, nn.Module) and (reason := non_finite_weights(detector)) is not None:
            raise InputError(f"the detector cannot be exported: {reason}")
        self.options = options
        if options.batches:
            detector = cast(Detector, FixedBatches(detector, options.batches))
        self.detector = _checked_copy(detector)
        specification = self.detector.specification
        score, iou = options.score_threshold, options.iou_threshold
        self.thresholds = (
            specification.score_threshold if score is None else score,
            specification.iou_threshold if iou is None else iou,
        )
        self.outputs = output_names(self.detector)
        self.carried = options.pictures if options.carry_picture else ()

    @cached_property
    def program(self) -> ExportedProgram:
        """The graph of `detect` on the CPU."""
        _logger.info("making a graph of the detector")
        return trace_detect(self.network, self.thresholds, torch.device("cpu"), self.batch)

    @property
    def network(self) -> Detector:
        """The detector, which may take batches of some sizes only."""
        return without_batches(self.detector)

    @property
    def batch(self) -> int | None:
        """The one size of batches of a file that holds one graph; None for any. Raises ArtifactError."""
        if len(self.options.batches) > 1:
            raise ArtifactError(
                "batches must be one size for a file that holds one graph, got "
                f"{', '.join(map(str, self.options.batches))}"
            )
        return next(iter(self.options.batches), None)

    @cached_property
    def reference(self) -> Reference:
        """The detections of the detector in PyTorch."""
        _logger.info("computing reference detections with PyTorch")
        score, iou = self.thresholds
        # A lower threshold finds more, but only in float32: other precisions move low scores further.
        least = score / 10 if self.options.dtype == "float32" else score
        batches = BATCHES if self.options.parity else _QUICK_BATCHES
        return Reference(self.detector, (least, iou), self.options.pictures, batches)

    @cached_property
    def self_test(self) -> SelfTest:
        """The self-test of all files in float32."""
        _logger.info("choosing a self-test")
        return build_self_test(self.detector, pictures=self.carried)

    @cached_property
    def runtimes(self) -> Runtimes:
        """Return the runtimes and devices on which the files are compared."""
        options = self.options
        devices = tuple(dict.fromkeys(("cpu", options.device.type)))
        if not options.parity:
            return Runtimes(devices, boxes=options.tolerance)
        return Runtimes(devices, options.runner, options.ops, options.tolerance, timed=True)


def save_artifact(
    detector: Detector,
    path: str | Path,
    score_threshold: float | None = None,
    iou_threshold: float | None = None,
    *,
    kind: str = "torchscript",
    **options: Any,
) -> ArtifactMetadata:
    """Write a detector as an artifact, a file that describes and tests itself.

    kind: the format, one of `ARTIFACTS`. options: as of `ExportOptions`. Before the file is written it is
    loaded back, passes its self-test and finds what the detector finds, so an artifact appears whole and
    working or not at all. Raises ArtifactError, naming what to change where the detector does not follow
    the protocol, the format cannot express it, or the file finds other things; InputError for weights that
    are not finite, OSError if the file cannot be written, and ValueError for thresholds outside 0..1.
    """
    plan = Plan(detector, ExportOptions(score_threshold, iou_threshold, **options))
    made = make_artifact(plan, kind, str(path))
    atomic_write(path, made.content)
    return made.metadata


def make_artifact(plan: Plan, kind: str, name: str, **build_options: Any) -> MadeArtifact:
    """Return the file that `save_artifact` writes; errors call it `name`. build_options: of the format."""
    _logger.info("making the file for %s", kind)
    model: Model = import_module(f"lensbox.export.formats.{kind}").build(plan, **build_options)
    precision = _precision(plan, model) if plan.options.dtype != "float32" else None
    metadata = _metadata(plan, model, precision)
    content, reference = model.pack(metadata), plan.reference
    _logger.info("loading the file back and comparing it with the detector")
    rows = verify(
        content,
        name,
        metadata,
        reference,
        plan.runtimes,
        devices=model.devices,
        more_batches=model.more_batches,
        runs_in_cpp=model.runs_in_cpp,
    )
    if rows:
        metadata = dataclasses.replace(metadata, parity=rows)
        content = model.pack(metadata)
    return MadeArtifact(content, metadata)


def make_files(
    detector: Detector, paths: Mapping[str, Path], options: ExportOptions
) -> tuple[dict[Path, bytes], str]:
    """Return the content of each file, and their comparison with the detector as Markdown.

    paths: by format, one of `ARTIFACTS` or "triton", whose path is a folder; for all but the first two the
    precision must be float32. Raises the errors of `save_artifact`.
    """
    for name in paths:
        _require_packages(name)
    plan = Plan(detector, options)
    files: dict[Path, bytes] = {}
    described: dict[Path, ArtifactMetadata] = {}
    for name in ARTIFACTS:
        if name in paths:
            path = paths[name]
            files[path], described[path] = make_artifact(plan, name, str(path))
            _report(path, len(files[path]), described[path])
    if "triton" in paths:
        from lensbox.export.formats.triton import make_repository  # needs packages that others do without

        files |= make_repository(plan, paths["triton"])
    return files, parity_report(described, plan.reference) if described and options.parity else ""


def _checked_copy(detector: Detector) -> Detector:
    faults = [] if isinstance(detector, nn.Module) else missing(detector)
    if not faults:
        module = copy.deepcopy(cast(nn.Module, detector)).cpu().eval()
        faults = missing(module)
    if faults:
        raise ArtifactError("\n  ".join(["the detector cannot be exported:", *faults]))
    return cast(Detector, module)


def _require_packages(name: str) -> None:
    """Raise ArtifactError before anything is computed."""
    missing_packages = [package for package in _PACKAGES.get(name, ()) if find_spec(package) is None]
    if missing_packages:
        raise ArtifactError(
            f"--format {name} needs the Python packages {', '.join(missing_packages)}: "
            f"pip install 'lensbox[{name}]'"
        )


def _precision(plan: Plan, model: Model) -> Precision:
    options, detect = plan.options, model.detect()
    _logger.info("measuring what %s changes", options.dtype)
    thresholds = plan.reference.thresholds
    return measure_precision(
        lambda canvases: detect(canvases, *thresholds),
        plan.reference,
        options.dtype,
        options.device.type,
        options.tolerance,
    )


def _metadata(plan: Plan, model: Model, precision: Precision | None) -> ArtifactMetadata:
    detector, specification = plan.detector, plan.detector.specification
    if precision is None:
        self_test = plan.self_test
    else:
        _logger.info("choosing a self-test")
        self_test = build_self_test(detector, precision.dtype, model.converted, plan.carried)
    extras = {name: Extra(tuple(shape), "points") for name, shape in specification.points.items()}
    extras |= {name: Extra(tuple(shape), "values") for name, shape in specification.values.items()}
    return ArtifactMetadata(
        format_version=FORMAT_VERSION,
        name=specification.name,
        lensbox_version=lensbox.ops.read_build_info(lensbox.ops.library_path()).version,
        torch_version=torch.__version__.split("+")[0],
        weights_sha256=weights_sha256(cast(nn.Module, detector)),
        input={
            "canvas": {"dtype": "uint8", "shape": ["B", *_canvas_shape(specification)]},
            "image": {"dtype": "uint8", "shape": ["C", "H", "W"], "channels": [1, 3, 4]},
        },
        output=_outputs(detector),
        canvas=Canvas(specification.height, specification.width, specification.channels, specification.fill),
        reading=Reading(specification.orientation, specification.jpeg_oversampling),
        defaults=Thresholds(*plan.thresholds),
        ops=model.ops,
        methods=model.methods,
        self_test=self_test,
        classes=tuple(specification.classes),
        extras=extras,
        precision=precision,
        libraries=model.libraries,
        compiled=model.compiled,
        batch=model.batch,
    )


def _canvas_shape(specification: DetectorSpec) -> list[int]:
    return [specification.channels, specification.height, specification.width]


def _outputs(detector: Detector) -> dict[str, Any]:
    """Return dtype, shape and unit of each output of `detect`; K where the number of slots varies."""
    specification = detector.specification
    with torch.no_grad():
        canvases = [torch.zeros(batch, *_canvas_shape(specification), dtype=torch.uint8) for batch in (1, 2)]
        single, double = (named(detector.detect(batch, 0.0, 0.5)) for batch in canvases)
    slots = single["boxes"].shape[1]
    shape = ["B", slots if double["boxes"].shape[1] == slots else "K"]
    outputs: dict[str, Any] = {}
    for name, value in single.items():
        dtype = str(value.dtype).removeprefix("torch.")
        outputs[name] = {"dtype": dtype, "shape": [*shape, *value.shape[2:]] if name != "counts" else ["B"]}
    for name in ("boxes", *specification.points):
        outputs[name]["unit"] = "canvas pixels, xyxy" if name == "boxes" else "canvas pixels, xy"
    return outputs


def _report(path: Path, size: int, metadata: ArtifactMetadata) -> None:
    _logger.info(
        "%s: %d bytes, torch %s, weights %s, self-test with %d detections passed",
        path,
        size,
        metadata.torch_version,
        metadata.weights_sha256[:12],
        len(metadata.self_test.scores),
    )
    for row in metadata.parity:
        _logger.info(
            "%s on %s in batches of %d: boxes within %.2g px and scores within %.2g of PyTorch's, %.3g ms",
            row.runtime,
            row.device,
            row.batch,
            row.boxes,
            row.scores,
            row.milliseconds,
        )
    if metadata.precision is not None:
        _logger.info("%s", describe_change(metadata.precision))
