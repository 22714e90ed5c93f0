"""Score a detector, an artifact or the lines of `lensbox detect` on labelled photographs.

`lensbox detect` would find the same detections: a detector in memory passes the same steps as an artifact.
"""

import json
import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import torch
from torch import nn

from lensbox.cli.source import ask_artifact
from lensbox.common.canvas import Canvas
from lensbox.common.errors import InputError, LensboxError, reading
from lensbox.common.files import read_input
from lensbox.common.torch_settings import torch_defaults
from lensbox.evaluation.average_precision import Labels, Matches, Predictions
from lensbox.evaluation.data.account import Account
from lensbox.evaluation.data.labels import DataError, LabelledImage, clipped
from lensbox.evaluation.figures import Figures, figures_of
from lensbox.export.detector.wrapper import DetectorWrapper
from lensbox.ops.canvas import fit_to_canvases
from lensbox.runtime import Artifact
from lensbox.runtime.file.metadata import Reading

# Average precision counts detections with at least this score, or less if a detector finds more by default.
SCORE_THRESHOLD = 0.02

# Width and height of a photograph with its detections, or why there are none.
Found = tuple[int, int, Predictions] | str

logger = logging.getLogger(__name__)


@torch_defaults()
def evaluate(
    detector: nn.Module | Artifact,
    photographs: Sequence[LabelledImage],
    score_threshold: float | None = None,
    account: Account | None = None,
) -> Figures:
    """Return the figures of a detector on photographs of `read_labels`.

    detector: an artifact, or a module with `specification` and `detect` (docs/your_detector.md), which is
    called in eval mode and without gradients on the device of its parameters. score_threshold: of the
    detections; None for the detector's, or 0.02 if that is lower. account: of the labels; it is logged, and
    added to the figures. Raise InputError if a module has no specification, no box is to find, or boxes or
    scores are not finite.
    """
    with _as_artifact(detector) as artifact:
        least, iou = artifact.metadata.thresholds
        least = min(least, SCORE_THRESHOLD) if score_threshold is None else score_threshold
        question = {"score_threshold": least, "orientation": photographs[0].orientation}
        # A shard is read one photograph at a time.
        files = (image.path if image.size < 0 else image.read_bytes() for image in photographs)
        numbers = {name: label for label, name in enumerate(artifact.classes)}
        with closing(ask_artifact(artifact, files, question)) as answers:
            found = (_found(answer, numbers) for answer in answers)
            more = {"score_threshold": least, "iou_threshold": iou}
            return _scored(found, photographs, artifact.classes, artifact.metadata.canvas, account, **more)


def evaluate_file(
    file: Path,
    photographs: Sequence[LabelledImage],
    canvas: Canvas | None = None,
    account: Account | None = None,
) -> Figures:
    """Return the figures of the lines of `lensbox detect` or of `lensbox_runner detect`.

    canvas: of whose pixels the heights are; None for heights in pixels of the photographs. Raise InputError
    if the file is something else, names a photograph twice, or lacks one of them.
    """
    numbers: dict[str, int] = {}
    found = _read_lines(file, photographs, numbers)
    if numbers:  # classes that were never found count, too
        for name in sorted({name for image in photographs for name in image.classes} - {""}):
            numbers.setdefault(name, len(numbers))
    return _scored(found, photographs, tuple(numbers), canvas, account)


@contextmanager
def _as_artifact(detector: nn.Module | Artifact) -> Iterator[Artifact]:
    """Yield a module in eval mode as the artifact that its export would be. Raise InputError."""
    if isinstance(detector, Artifact):
        yield detector
        return
    given: Any = getattr(detector, "specification", None)
    if given is None:
        raise InputError("a detector must have a specification (docs/your_detector.md), got none")
    metadata: Any = SimpleNamespace(
        canvas=Canvas.of(given),
        reading=Reading(given.orientation, given.jpeg_oversampling),
        thresholds=(given.score_threshold, given.iou_threshold),
        classes=tuple(given.classes),
        outputs=given.outputs,
        points=tuple(given.points),
    )
    tensors = (*detector.parameters(), *detector.buffers())
    device = next((value.device for value in tensors), torch.device("cpu"))
    training = detector.training
    detector.eval()
    try:
        yield Artifact(DetectorWrapper(cast(Any, detector)).to(device), metadata, device)
    finally:
        detector.train(training)


def _scored(
    answers: Iterable[Found],
    photographs: Sequence[LabelledImage],
    classes: Sequence[str],
    canvas: Canvas | None,
    account: Account | None,
    **more: Any,
) -> Figures:
    counted = account or Account()
    labels = _labels(photographs, classes, counted)
    if account is not None:
        account.report("the labels:")
    matches, kept = Matches(len(classes) or 1), []
    for image, truth, answer in zip(photographs, labels, answers, strict=True):
        if isinstance(answer, str):
            line = f"{image.path}: {image.name} is left out: {answer}"
            logger.warning("%s", line)
            counted.skip("photographs skipped: no detections", line)
            continue
        *size, found = answer
        if size != [image.width, image.height]:
            raise DataError(
                f"{image.path}: detections and labels must be of the same pixels (--orientation turns them), "
                f"got {size[0]} x {size[1]} and {image.width} x {image.height}"
            )
        kept.append(image)
        # Clipped as the labels are.
        matches.add(truth, found._replace(boxes=clipped(found.boxes, image)), _scale(image, canvas))
    if not kept:
        raise DataError("evaluation needs photographs with detections, got none")
    if account is not None:
        more["account"] = account.to_json()
    sides = canvas and (canvas.height, canvas.width)
    return figures_of(matches, classes, photographs=kept, canvas=sides, **more)


def _labels(photographs: Sequence[LabelledImage], classes: Sequence[str], account: Account) -> list[Labels]:
    """Return the labels of each photograph. Boxes of classes that the detector lacks are left out."""
    known, labels = {name: label for label, name in enumerate(classes)}, []
    others: defaultdict[str, list[str]] = defaultdict(list)  # origins of boxes by class
    for image in photographs:
        numbers = np.array([known.get(name, -1) if classes else 0 for name in image.classes], np.int64)
        boxes, kept = clipped(image.boxes, image), numbers >= 0
        areas = np.where(np.isnan(image.areas), np.prod(boxes[:, 2:] - boxes[:, :2], 1), image.areas)
        labels.append(Labels(boxes[kept], image.ignore[kept], numbers[kept], areas[kept]))
        for row in np.flatnonzero(~kept):
            others[image.classes[row]].append(image.origin)
    for name, origins in others.items():
        line = f"{origins[0]}: {len(origins)} boxes of class {name!r}, which the detector lacks"
        account.skip_box("a class that the detector lacks", line, len(origins))
        account.add("boxes used", -len(origins))
    if all(each.ignore.all() for each in labels):
        of = f" of the detector's classes, {', '.join(classes[:9])}" if classes else ""
        reason = f"; {account.problems[0]}" if account.problems else ""
        raise DataError(f"data must hold boxes to find{of}, got none in {photographs[0].path}{reason}")
    return labels


def _found(answer: Mapping[str, Any] | LensboxError, numbers: Mapping[str, int]) -> Found:
    """Return an answer of `lensbox detect`. numbers: of the classes by name. Raise InputError."""
    if isinstance(answer, LensboxError) or "error" in answer:
        return str(answer if isinstance(answer, LensboxError) else answer["error"])
    rows = answer["detections"]
    # In float32, as the runtimes compute: C++ prints the shortest number that gives it.
    given = {
        key: np.array([row[key] for row in rows], np.float32).astype(np.float64) for key in ("box", "score")
    }
    if bad := [key for key, values in given.items() if not np.isfinite(values).all()]:
        raise InputError(f"each {bad[0]} of detections must be finite numbers, got null or NaN")
    classes = np.array([numbers[row["label"]] if "label" in row else 0 for row in rows], np.int64)
    found = Predictions(given["box"].reshape(-1, 4), given["score"], classes)
    return answer["width"], answer["height"], found


def _scale(image: LabelledImage, canvas: Canvas | None) -> float:
    """Return by how much heights of a photograph are scaled on a canvas."""
    if canvas is None:
        return 1.0
    nothing = torch.zeros(1, 1, 1, dtype=torch.uint8).expand(1, image.height, image.width)
    sides = canvas.height, canvas.width
    return float(fit_to_canvases([nothing], None, *sides, fit=canvas.fit, filter="nearest")[1][0, 1])


def _read_lines(file: Path, photographs: Sequence[LabelledImage], numbers: dict[str, int]) -> list[Found]:
    """Return the detections of each photograph. Add the labels to the numbers. Raise InputError."""
    by_end: defaultdict[tuple[str, ...], set[int]] = defaultdict(set)  # by the last parts of the path
    for index, image in enumerate(photographs):
        path = image.path.absolute()  # also where it leads, if it is a link
        for name in {path, path.resolve()} if image.size < 0 else {PurePosixPath(image.name)}:
            for start in range(len(name.parts)):
                by_end[name.parts[start:]].add(index)

    def index_of(path: str) -> int | None:
        """Return the photograph with most of a path's last parts; None for another photograph."""
        parts = PurePosixPath(path.replace("\\", "/")).parts
        near = next((by_end[parts[k:]] for k in range(len(parts)) if parts[k:] in by_end), set())
        if len(near) > 1:
            paths = " and ".join(str(photographs[index].path) for index in sorted(near)[:2])
            raise InputError(f"{path} fits several photographs, {paths}: run detect above their folders")
        return next(iter(near), None)

    found: dict[int, Found] = {}
    with reading(file, InputError):
        text = read_input(file).decode("utf-8-sig", errors="replace")
    for number, line in enumerate(text.split("\n"), 1):
        try:
            document = json.loads(line) if line.strip() else {"images": []}
            # Without --json-lines, the runner writes one document.
            for answer in document.get("images", [document]):
                if (place := index_of(answer["file"])) is None:
                    continue
                if place in found:
                    raise InputError(f"{answer['file']} is a photograph that an earlier line has")
                for row in answer.get("detections", ()):
                    if "label" in row:
                        numbers.setdefault(row["label"], len(numbers))
                found[place] = _found(answer, numbers)
        except InputError as error:
            raise InputError(f"{file}:{number}: {error}") from error
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise InputError(
                f"{file}:{number} must be a line of `lensbox detect` or `lensbox_runner detect`, with "
                f"file, width, height and detections, got {line.strip()[:80]!r}"
            ) from error
    if missing := [image.name for index, image in enumerate(photographs) if index not in found]:
        lacks = f"lacks {len(missing)} of {len(photographs)}, such as {missing[0]}"
        raise InputError(f"{file} must have a line for each photograph, and {lacks}")
    return [found[index] for index in range(len(photographs))]
