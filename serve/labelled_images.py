"""From the body of /v1/evaluate to images and the boxes that are to be found in them."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from lensbox.serve.box_json import check_box
from lensbox.serve.errors import ApiError, shown
from lensbox.serve.form import form_parts, is_form
from lensbox.serve.image_list import Source, as_source, merged, read_json, read_question
from lensbox.serve.schemas import EvaluateParameters
from lensbox.train.average_precision import ImageLabels

MOST_TARGETS = 4096  # matching compares each with each detection of its image
_KEYS = {"box", "label", "ignore"}


class LabelledImages(NamedTuple):
    """The images of a request and, one for each, the boxes in them, in pixels of the upright photograph."""

    sources: list[Source]
    labels: list[ImageLabels]
    parameters: EvaluateParameters


def read_labelled_images(
    body: bytes,
    content_type: str,
    parameters: EvaluateParameters,
    max_images: int,
    classes: Sequence[str],
) -> LabelledImages:
    """The images and targets of a form or of JSON.

    A form has the field `image`, once for each image, and `targets` once: JSON, a list of the images' lists
    of boxes. As JSON each image is {"data" or "url": …, "targets": its list of boxes}. A box is
    [x1, y1, x2, y2] or {"box": that, "label": name of a class, "ignore": whether it does not count}.
    Raises ApiError as `read_image_list` does, 422 for other targets, 413 for more than `MOST_TARGETS`.
    """
    if is_form(content_type):
        parts = form_parts(body, content_type, max_images + 1)
        sources: list[Source] = [content for name, content in parts if name == "image"]
        texts = [content for name, content in parts if name == "targets"]
        if not sources or len(texts) != 1 or len(parts) != len(sources) + 1:
            raise ApiError(
                422,
                "invalid_form",
                "the form must have the field 'image', once for each image, and 'targets' once, "
                f"got {shown([name for name, _ in parts])}",
            )
        targets = read_json(texts[0], **_most(len(sources)))
        if not isinstance(targets, list) or len(targets) != len(sources):
            rule = f"an array with the boxes of each of {len(sources)} images"
            raise _invalid(f"targets must be {rule}, got {_counted(targets)}")
        return LabelledImages(sources, _labels(targets, "targets[{}]", classes), parameters)
    question = read_question(body, max_images, **_most(max_images))
    images = question.pop("images")
    targets = []
    for index, image in enumerate(images):
        if not isinstance(image, dict) or "targets" not in image:
            raise _invalid(f"images[{index}] must be an object with targets, got {shown(image)}")
        targets.append(image.pop("targets"))
    sources = [as_source(f"images[{index}]", image) for index, image in enumerate(images)]
    labels = _labels(targets, "targets of images[{}]", classes)
    return LabelledImages(sources, labels, merged(parameters, question))


def _most(images: int) -> dict[str, int]:
    """Of what targets are made: an array for each image and each box, and in that 4 numbers and 3 members."""
    arrays = images + MOST_TARGETS
    return {"most_arrays": arrays, "most_commas": 6 * arrays}


def _labels(targets: Sequence[Any], name: str, classes: Sequence[str]) -> list[ImageLabels]:
    """The boxes of each image. name: of an image's list, with its number to be filled in."""
    labels, count = [], 0
    for index, boxes in enumerate(targets):
        owner = name.format(index)
        if not isinstance(boxes, list):
            raise _invalid(f"{owner} must be an array of boxes, got {shown(boxes)}")
        count += len(boxes)
        if count > MOST_TARGETS:
            raise ApiError(
                413, "too_many_boxes", f"targets must have at most {MOST_TARGETS} boxes, got {count} or more"
            )
        read = [_target(f"{owner}[{number}]", target, classes) for number, target in enumerate(boxes)]
        labels.append(
            ImageLabels(
                np.array([target.box for target in read], np.float64).reshape(-1, 4),
                np.array([target.ignore for target in read], np.bool_),
                np.array([target.label for target in read], np.int64) if classes else None,
            )
        )
    return labels


class _Target(NamedTuple):
    box: list[float]
    label: int
    ignore: bool


def _target(name: str, value: Any, classes: Sequence[str]) -> _Target:
    if isinstance(value, list):
        value = {"box": value}
    if not isinstance(value, dict) or "box" not in value or not value.keys() <= _KEYS:
        rule = '[x1, y1, x2, y2] or {"box": that, "label": …, "ignore": …}'
        raise _invalid(f"{name} must be {rule}, got {shown(value)}")
    box, ignore = value["box"], value.get("ignore", False)
    check_box(name, box)
    if not (box[0] < box[2] and box[1] < box[3]):
        raise _invalid(f"{name} must have x1 < x2 and y1 < y2, got {shown(box)}")
    if not isinstance(ignore, bool):
        raise _invalid(f"ignore of {name} must be true or false, got {shown(ignore)}")
    label = value.get("label")
    if not classes:
        if label is not None:
            raise _invalid(f"{name} must have no label, as the model has no classes, got {shown(label)}")
        return _Target(box, 0, ignore)
    if label not in classes:
        known = ", ".join(map(repr, classes[:5])) + (" and others" if len(classes) > 5 else "")
        raise _invalid(f"label of {name} must be one of the model's classes, {known}, got {shown(label)}")
    return _Target(box, classes.index(label), ignore)


def _counted(value: Any) -> str:
    return f"{len(value)} of them" if isinstance(value, list) else shown(value)


def _invalid(message: str) -> ApiError:
    return ApiError(422, "invalid_targets", message)
