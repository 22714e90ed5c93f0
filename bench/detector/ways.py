"""The formats, precisions and runtimes in which the detector is timed."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from lensbox.artifact.archive import open_file, read_file
from lensbox.artifact.self_test import IOU_TOLERANCES, TOLERANCES
from lensbox.bench.detections import require_same_detections
from lensbox.bench.runner import MakeRun, UnavailableError, Way, WrongAnswerError, always
from lensbox.common.errors import ArtifactError
from lensbox.export.graph import quiet_export
from lensbox.export.pipeline import save_artifact
from lensbox.model import FaceDetector
from lensbox.model.protocol_check import named
from lensbox.runtime.artifact import Artifact
from lensbox.runtime.detection_sets import Limits, found_in
from lensbox.runtime.loading import load_artifact

if TYPE_CHECKING:
    import onnxruntime

TORCHSCRIPT = "TorchScript, float32"
ONNX = "ONNX file, onnxruntime"
TORCHSCRIPT_NETWORK = "TorchScript, the network alone"
ONNXRUNTIME_NETWORK = "onnxruntime, the network alone"
CAPTURED = ", captured"
# Of packages. A process that times float32 on a GPU cannot time TF32: see `runtime/gpu_float32.py`.
PRECISIONS = {"cpu": ("float32",), "cuda": ("float32", "float16", "bfloat16")}
_OWN = (TORCHSCRIPT, TORCHSCRIPT + CAPTURED, ONNX, TORCHSCRIPT_NETWORK)

_ROUNDED = Limits(boxes=3.0, scores=0.05, iou=0.1, extras={})  # for the 8 bits of mantissa of bfloat16


class Detectors:
    """The detector's files, each exported on first use.

    detector: eager, on the CPU, in eval mode. folder: for the files. device: "cpu" or "cuda". packages: take
    these in place of exported ones. Raises ArtifactError if one is no package for the device, or if two have
    the same precision.
    """

    def __init__(
        self, detector: FaceDetector, folder: Path, device: str, threads: int, packages: Sequence[Path] = ()
    ) -> None:
        self.detector, self.device, self.threads = detector, device, threads
        self._folder = folder
        self.packages: dict[str, Path] = {}  # by precision
        for path in packages:
            dtype = _precision_of(path, device)
            if dtype in self.packages:
                raise ArtifactError(f"{self.packages[dtype]} and {path} are both {dtype} packages; give one")
            self.packages[dtype] = path
        self._artifacts: dict[tuple[Path, str], Artifact] = {}
        self._failures: dict[Path, str] = {}

    def canvases(self, artifact: Artifact, batch: int) -> tuple[Tensor, tuple[float, float]]:
        """Return copies of the self-test's picture as canvases, and its thresholds of score and IoU."""
        test = artifact.metadata.self_test
        with torch.inference_mode():
            canvases, _ = artifact.module.preprocess([test.image.to(self.device)])
        repeated: Tensor = canvases.repeat(batch, 1, 1, 1)
        return repeated, (test.score_threshold, test.iou_threshold)

    def torchscript(self, copy: str = "") -> Artifact:
        """Return the TorchScript artifact. copy: a name for one that is loaded for itself."""
        return self._loaded(self._folder / "detector.pt", copy, self._saving("torchscript", "float32"))

    def package(self, dtype: str, copy: str = "") -> Artifact:
        """Return the AOTInductor package. Raises UnavailableError, such as for a missing compiler."""
        path = self.packages.get(dtype, self._folder / f"detector.{dtype}.pt2")
        return self._loaded(path, copy, self._saving("aoti", dtype))

    def onnx(self) -> Artifact:
        """Return the ONNX file. Raises UnavailableError."""
        with _packages_of_onnx():
            import lensbox.export.formats.onnx  # noqa: F401
        return self._loaded(self._folder / "detector.onnx", "", partial(save_artifact, kind="onnx"))

    def network_session(self, canvases: Tensor) -> "onnxruntime.InferenceSession":
        """Return onnxruntime with the network alone, for as many canvases. Raises UnavailableError."""
        with _packages_of_onnx():
            import onnxruntime
            import onnxscript  # noqa: F401 (the exporter needs it)
        path = self._folder / f"network{len(canvases)}.onnx"
        with quiet_export(), torch.inference_mode(False), torch.no_grad():
            inputs = (canvases.clone(),)
            torch.onnx.export(self.detector, inputs, path, input_names=["images"], dynamo=True, verbose=False)
        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads, settings.inter_op_num_threads = self.threads, 1
        return onnxruntime.InferenceSession(path, settings, providers=["CPUExecutionProvider"])

    def _saving(self, kind: str, dtype: str) -> Callable[..., object]:
        return partial(save_artifact, kind=kind, dtype=dtype, device=torch.device(self.device), tolerance=8.0)

    def _loaded(self, path: Path, copy: str, save: Callable[..., object]) -> Artifact:
        key = path, copy
        if key not in self._artifacts:
            if path in self._failures:
                raise UnavailableError(self._failures[path])
            try:
                if not path.exists():
                    save(self.detector, path)
                self._artifacts[key] = load_artifact(path, self.device)
            except ArtifactError as error:  # such as a missing compiler: a second attempt would be as slow
                self._failures[path] = str(error)
                raise UnavailableError(str(error)) from error
        return self._artifacts[key]


def groups_of_ways(detectors: Detectors, batch: int) -> list[list[Way]]:
    """Return the ways to run a batch of canvases on the device of the detectors.

    Ways of a group are timed in turns. On a GPU, a file without and with graphs is a group; on a CPU, where
    other processes disturb more, all ways are one group.
    """
    loaders: dict[str, Callable[..., Artifact]] = {TORCHSCRIPT: detectors.torchscript}
    if detectors.device == "cuda":
        _add_packages(loaders, detectors)
        return [
            [_way(name, load, detectors, batch), _way(name + CAPTURED, load, detectors, batch, capture=True)]
            for name, load in loaders.items()
        ]
    loaders[ONNX] = detectors.onnx
    _add_packages(loaders, detectors)
    ways = [_way(name, load, detectors, batch) for name, load in loaders.items()]
    others = {
        "eager PyTorch": partial(_prepare_eager, detectors, batch),
        TORCHSCRIPT_NETWORK: partial(_prepare_network, detectors, batch, False),
        ONNXRUNTIME_NETWORK: partial(_prepare_network, detectors, batch, True),
    }
    ways += [Way(name, prepare, images=batch, own=name in _OWN) for name, prepare in others.items()]
    return [ways]


def _add_packages(loaders: dict[str, Callable[..., Artifact]], detectors: Detectors) -> None:
    """Add the given packages; if there are none, those that this device can be exported for."""
    for dtype in detectors.packages or PRECISIONS[detectors.device]:
        loaders[f"package, {dtype}"] = partial(detectors.package, dtype)


def _way(
    name: str, load: Callable[..., Artifact], detectors: Detectors, batch: int, capture: bool = False
) -> Way:
    return Way(
        name,
        partial(_prepare_detect, name, load, detectors, batch, capture),
        ("complete" if detectors.device == "cuda" else "call",),
        images=batch,
        own=name in _OWN,
        slow_to_start=name.startswith("package") and not detectors.packages,
    )


def _precision_of(path: Path, device: str) -> str:
    """Return the precision of a package for the device, such as "float16". Raises ArtifactError."""
    file = open_file(read_file(path), str(path))
    compiled = file.metadata.compiled
    if file.kind != "aoti" or compiled is None:
        raise ArtifactError(f"expected an AOTInductor package (.pt2), got a file of kind {file.kind}: {path}")
    if compiled.device != device:
        raise ArtifactError(
            f"expected a package compiled for {device}, got one for {compiled.device}: {path}; "
            f"give --device {compiled.device}, or export one with --device {device}"
        )
    return file.metadata.precision.dtype if file.metadata.precision else "float32"


def _prepare_detect(
    name: str, load: Callable[..., Artifact], detectors: Detectors, batch: int, capture: bool = False
) -> MakeRun:
    """Prepare an artifact. A captured one is loaded for itself: plain calls must not run in its graphs."""
    artifact = load(copy="captured") if capture else load()
    canvases, thresholds = detectors.canvases(artifact, batch)
    if capture:
        artifact.capture([batch], *thresholds)
    call = partial(artifact.detect, canvases, *thresholds)
    expected = found_in(named(detectors.detector.detect(canvases[:1].cpu(), *thresholds)), None)
    tolerance, iou = TOLERANCES[detectors.device], IOU_TOLERANCES[detectors.device]
    limits = _ROUNDED if "bfloat16" in name else Limits(tolerance.boxes, tolerance.scores, iou, {})
    answer = named(call())
    for index in range(batch):
        require_same_detections(found_in(answer, None, index), expected, thresholds, limits)
    return always(call)


def _prepare_eager(detectors: Detectors, batch: int) -> MakeRun:
    canvases, thresholds = detectors.canvases(detectors.torchscript(), batch)
    return always(partial(detectors.detector.detect, canvases, *thresholds))


def _prepare_network(detectors: Detectors, batch: int, onnxruntime: bool) -> MakeRun:
    artifact = detectors.torchscript()
    canvases = detectors.canvases(artifact, batch)[0]
    call: Callable[[], Any] = partial(artifact.module, canvases)
    if onnxruntime:
        call = partial(detectors.network_session(canvases).run, None, {"images": canvases.numpy()})
    for value, wanted in zip(call(), detectors.detector(canvases), strict=True):
        if not torch.allclose(torch.as_tensor(value), wanted, rtol=1e-4, atol=0.01):
            raise WrongAnswerError("boxes or logits differ by more than rounding")
    return always(call)


@contextlib.contextmanager
def _packages_of_onnx() -> Iterator[None]:
    """Turn a missing package into UnavailableError."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise UnavailableError(
            f"the Python package {error.name!r} is not installed; pip install 'lensbox[onnx]' brings it"
        ) from error
