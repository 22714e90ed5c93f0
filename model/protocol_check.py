"""Check that a module follows the protocol of detectors; report each fault with the line to add."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from lensbox.common.canvas import Canvas
from lensbox.common.torch_settings import torch_defaults
from lensbox.model.protocol import DetectorSpec, Normalise
from lensbox.model.user_errors import kind_of, location
from lensbox.ops.canvas import fit_to_canvases

Answer = Mapping[str, Tensor]
# Of an output of `detect`: the shape behind [B, K], None for [B]; and the dtypes that it may have.
_Output = tuple[Sequence[int] | None, tuple[torch.dtype, ...]]

_BATCH = 2
_LINE_FOR_SPECIFICATION = "self.specification = DetectorSpec(height=..., width=...)"
_LINE_FOR_DETECT = (
    "def detect(self, images: Tensor, score_threshold: float, iou_threshold: float) -> dict[str, Tensor]:"
)
_CONVERSIONS = {torch.float32: "float()", torch.int64: "long()", torch.int32: "int()"}


@torch_defaults()
def faults_of(detector: object) -> list[str]:
    """Return the faults of a detector against the protocol, one sentence each.

    Call its methods without gradients, in its training mode, with random canvases on its device.
    """
    if not isinstance(detector, nn.Module):
        return [f"a detector must be a torch.nn.Module, got {kind_of(detector)}"]
    if faults := _faults_of_members(detector):
        return faults
    with torch.no_grad():
        return _faults_of_detect(detector) + _faults_of_other_methods(detector)


def answer_of(detector: Any, canvases: Tensor, score_threshold: float, iou_threshold: float) -> Answer:
    """Return the outputs of `detect`, without gradients. canvases: uint8 [B, C, H, W]."""
    normalise = Normalise(detector.specification).to(canvases.device)
    with torch.no_grad():
        answer: Answer = detector.detect(normalise(canvases), score_threshold, iou_threshold)
        return answer


def answer_faults(found: object, specification: DetectorSpec, batch: int) -> list[str]:
    """Return the faults of the result of `detect` for a batch of canvases, one sentence each."""
    wanted = _outputs(specification)
    if not isinstance(found, dict):
        items = ", ".join(f'"{name}": {name}' for name in wanted)
        return [f"detect must return a dict of tensors, got {kind_of(found)}: return {{{items}}}"]
    faults = [
        f'detect must return {name}: add "{name}": {name} to the dict that it returns'
        for name in sorted(wanted.keys() - found.keys())
    ]
    faults += [_unknown_output(name, found[name]) for name in sorted(found.keys() - wanted.keys())]
    known = {name: value for name, value in found.items() if name in wanted}
    if "boxes" in known:
        faults += _faults_of_tensors(known, wanted, batch)
    return faults or _faults_of_numbers(found, specification)


def _faults_of_members(detector: nn.Module) -> list[str]:
    faults = []
    specification = getattr(detector, "specification", None)
    if specification is None:
        faults.append(f"the detector lacks the specification: add to __init__: {_LINE_FOR_SPECIFICATION}")
    elif not isinstance(specification, DetectorSpec):
        faults.append(
            f"specification must be a DetectorSpec, got {kind_of(specification)}: {_LINE_FOR_SPECIFICATION}"
        )
    member = inspect.getattr_static(detector, "specification", None)
    if isinstance(member, property):  # TorchScript would compile it
        faults.append(f"specification must be set in __init__, got a property: {_LINE_FOR_SPECIFICATION}")
    detect = getattr(detector, "detect", None)
    if not callable(detect):
        return [*faults, f"the detector lacks detect: add {_LINE_FOR_DETECT}"]
    thresholds = list(inspect.signature(detect).parameters.values())[1:3]
    if [parameter.annotation in (float, "float") for parameter in thresholds] != [True, True]:
        faults.append(
            "detect must take images and two thresholds annotated as float, since TorchScript treats "
            f"parameters without annotations as tensors: {_LINE_FOR_DETECT}"
        )
    return faults


def _faults_of_detect(detector: Any) -> list[str]:
    specification = detector.specification
    levels = _random_images(detector, *specification.canvas_shape)
    canvases, iou = Normalise(specification).to(levels.device)(levels), specification.iou_threshold
    call = f"detect(canvases, 0.0, {iou}) with canvases {_dtype(canvases.dtype)} {list(canvases.shape)}"
    found, fault = _call(call, detector.detect, canvases, 0.0, iou)
    if fault:
        return [fault]
    faults = answer_faults(found, specification, _BATCH)
    call = f"detect(canvases, 1.0, {iou}), which must find nothing,"  # all slots are empty
    _, fault = _call(call, detector.detect, canvases, 1.0, iou)
    return [*faults, fault] if fault else faults


def _faults_of_other_methods(detector: Any) -> list[str]:
    """Return the faults of the optional methods. Each method gets the result of the previous method."""
    images = list(_random_images(detector, 3, 48, 64))
    canvases, geometry = fit_to_canvases(images, None, *Canvas.of(detector.specification).as_tuple)
    boxes = torch.tensor([[[1.0, 2, 11, 22]]], device=canvases.device).expand(_BATCH, 1, 4)
    faults: list[str] = []

    def check(name: str, words: str, arguments: tuple[Any, ...], *wanted: tuple[Any, ...]) -> Any:
        """Call a method if the detector has it; return its result if that is right."""
        if not hasattr(detector, name):
            return None
        found, fault = _call(f"{name}({words})", getattr(detector, name), *arguments)
        if fault := fault or _tensor_faults(name, found, wanted):
            faults.append(fault)
            return None
        return found

    shape = [_BATCH, *detector.specification.canvas_shape]
    wanted = ("canvases", shape, torch.uint8), ("geometry", [_BATCH, 6], torch.float32)
    fitted = check("preprocess", "images, None", (images, None), *wanted)
    geometry = fitted[1] if fitted else geometry
    for name, values in (("restore", boxes), ("restore_points", boxes[..., :2])):
        shape = list(values.shape)
        check(name, f"{shape}, geometry", (values, geometry), ("values", shape, torch.float32))
    check("loss", "predictions, targets", (boxes[0], boxes[0] + 1), ("a scalar", [], torch.float32))
    return faults


def _call(call: str, method: Callable[..., Any], *arguments: object) -> tuple[Any, str]:
    """Return the result of a method, and a sentence about the error that it raised, or ''."""
    try:
        return method(*arguments), ""
    except Exception as error:  # the user's code may raise any type
        reason = str(error).strip().splitlines() or [""]
        said = f"{call} raised {type(error).__name__}: {reason[0]}{location(error)}"
        if "index -1 is out of bounds" in reason[0]:
            said += ": empty slots of padded_nms's indices hold -1, so gather with indices.clamp(min=0)"
        return None, said


def _random_images(detector: nn.Module, channels: int, height: int, width: int) -> Tensor:
    """Return uint8 [2, C, H, W], the same in each call, on the detector's device."""
    tensors = [*detector.parameters(), *detector.buffers()]
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (_BATCH, channels, height, width), dtype=torch.uint8, generator=generator)
    return images.to(tensors[0].device if tensors else "cpu")


def _outputs(specification: DetectorSpec) -> dict[str, _Output]:
    """Return the outputs of `detect` by name."""
    number, integer = torch.float32, torch.int64
    return {
        "boxes": ((4,), (number,)),
        "scores": ((), (number,)),
        "counts": (None, (torch.int32, integer)),
        **({"labels": ((), (integer,))} if specification.classes else {}),
        **{name: (shape, (number,)) for name, shape in specification.points.items()},
        **{name: (shape, (number, integer)) for name, shape in specification.values.items()},
    }


def _faults_of_tensors(found: Answer, wanted: Mapping[str, _Output], batch: int) -> list[str]:
    """Return the faults of types, dtypes and shapes."""
    for name, value in found.items():
        if not isinstance(value, Tensor):
            return [f"detect must return {name} as a tensor, got {kind_of(value)}"]
    boxes = found["boxes"]
    slots = boxes.shape[1] if boxes.dim() == 3 else -1
    if list(boxes.shape) != [batch, slots, 4]:
        return [f"boxes must have the shape [B, K, 4] with B = {batch}, got {list(boxes.shape)}"]
    faults = []
    for name, value in found.items():
        rest, dtypes = wanted[name]
        shape = [batch] if rest is None else [batch, slots, *rest]
        if value.dtype not in dtypes:
            faults.append(
                f"{name} must be {' or '.join(map(_dtype, dtypes))}, got {_dtype(value.dtype)}: "
                f"add {name} = {name}.{_CONVERSIONS[dtypes[0]]}"
            )
        if list(value.shape) != shape:
            faults.append(
                f"{name} must have the shape {shape} (B = {batch}, K = {slots}), got {list(value.shape)}"
            )
    return faults


def _faults_of_numbers(found: Answer, specification: DetectorSpec) -> list[str]:
    """Return the faults of the numbers in the slots that hold detections."""
    counts, slots = found["counts"].tolist(), found["boxes"].shape[1]
    if not all(0 <= count <= slots for count in counts):
        return [f"counts must be 0 to K = {slots}, got {counts}"]
    faults = []
    for index, count in enumerate(counts):
        scores = found["scores"][index, :count]
        if not bool(((scores >= 0) & (scores <= 1)).all()):  # false for NaN, too
            faults.append(f"scores must be 0 to 1, got {_range(scores)}: add scores = scores.sigmoid()")
        elif bool((scores[1:] > scores[:-1]).any()):
            faults.append(
                "scores must be in descending order: add order = scores.argsort(descending=True) and put all "
                "outputs into this order"
            )
        if specification.classes:
            labels, most = found["labels"][index, :count], len(specification.classes) - 1
            if not bool(((labels >= 0) & (labels <= most)).all()):
                is_off = bool((labels >= 1).all()) and int(labels.max()) == most + 1
                hint = ": they seem to count from 1, so add labels = labels - 1" if is_off else ""
                faults.append(f"labels must be 0 to {most}, indices into classes, got {_range(labels)}{hint}")
        for name in ("boxes", *specification.extras):
            if not bool(found[name][index, :count].isfinite().all()):
                faults.append(f"{name} must be finite, got NaN or infinity")
        if faults:
            break
    return faults


def _tensor_faults(method: str, found: Any, wanted: Sequence[tuple[str, list[int], torch.dtype]]) -> str:
    """Return a sentence about a result with other shapes or dtypes than wanted, or ''."""
    values = found if isinstance(found, tuple) else (found,)
    rule = ", ".join(f"{name} {_dtype(dtype)} {shape}" for name, shape, dtype in wanted)
    got = ", ".join(
        f"{_dtype(value.dtype)} {list(value.shape)}" if isinstance(value, Tensor) else kind_of(value)
        for value in values
    )
    fits = len(values) == len(wanted) and all(
        isinstance(value, Tensor) and list(value.shape) == shape and value.dtype == dtype
        for value, (_, shape, dtype) in zip(values, wanted, strict=True)
    )
    return "" if fits else f"{method} must return {rule}, got {got}"


def _unknown_output(name: str, value: object) -> str:
    if name == "labels":
        return (
            'detect returns labels, but there are no classes: add classes=("...", "...") to the DetectorSpec'
        )
    shape = tuple(value.shape[2:]) if isinstance(value, Tensor) else "..."
    lacks = f"detect returns {name!r}, which the DetectorSpec lacks: add"
    return f'{lacks} values={{"{name}": {shape}}} (or points=)'


def _range(values: Tensor) -> str:
    return f"{values.min():.6g} to {values.max():.6g}"


def _dtype(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
