"""What the endpoints take and answer."""

from http import HTTPStatus
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from lensbox.artifact.metadata import Orientation

Box = tuple[float, float, float, float]
Weight = Annotated[float, Field(ge=0, le=1e9)]
Threshold = Annotated[float, Field(ge=0, le=1)]
BINARY: dict[str, Any] = {"type": "string", "format": "binary"}


class DetectParameters(BaseModel):
    """Query parameters of /v1/detect. A misspelled name is an error, not a default."""

    model_config = ConfigDict(extra="forbid")

    score_threshold: Threshold | None = Field(
        None, description="Detections have a score above this. Default: the artifact's."
    )
    iou_threshold: Threshold | None = Field(
        None, description="Of two detections that overlap by more than this, the better one stays."
    )
    orientation: Orientation | None = Field(
        None,
        description="exif: turn the photograph upright by its EXIF data. stored: leave it as it lies. "
        "Default: the artifact's.",
    )


class EvaluateParameters(DetectParameters):
    """Query parameters of /v1/evaluate."""

    match_iou: Annotated[float, Field(gt=0, le=1)] | None = Field(
        None,
        description="A detection hits a box of its class with at least this IoU. Default: 0.5. "
        "(`iou_threshold` is that of non-maximum suppression.)",
    )


class NoParameters(BaseModel):
    """Of an endpoint without query parameters: any is an error."""

    model_config = ConfigDict(extra="forbid")


class Detection(BaseModel):
    box: Box = Field(description="x1, y1, x2, y2 in pixels of the upright photograph at full size")
    score: float
    label: str = Field("", description="name of the class; only where the artifact has `classes`")
    extras: dict[str, Any] = Field(
        {},
        description="further outputs by name, nested as the shapes in the artifact's `extras` say, points in "
        "pixels of the upright photograph; only where it has some",
    )


class DetectAnswer(BaseModel):
    """Documentation alone: the answer is made by `detections_to_json`."""

    width: int = Field(description="width of the upright photograph in pixels")
    height: int
    detections: list[Detection] = Field(description="best first")


class ImageData(BaseModel):
    model_config = ConfigDict(extra="forbid")

    data: str = Field(description="the file of an image in base64")


class ImageUrl(BaseModel):
    model_config = ConfigDict(extra="forbid")

    url: str = Field(description="where to fetch it; only from where the service was told to allow")


class DetectQuestion(DetectParameters):
    """Documentation alone: the body is read by `image_list`, whose messages say more."""

    images: list[ImageData | ImageUrl] = Field(min_length=1)


class Problem(BaseModel):
    """Of every error but those under /v2, as application/problem+json: RFC 9457."""

    type: Literal["about:blank"]
    title: str = Field(description="the status in words")
    status: int
    detail: str = Field(description="names the argument, the rule and the value received")
    code: str = Field(description="a stable word for programs")


class ImageError(BaseModel):
    """In the place of an image that cannot be read."""

    error: Problem


class ManyAnswers(BaseModel):
    """Documentation alone."""

    images: list[DetectAnswer | ImageError] = Field(description="in the order of the images")


class TargetBox(BaseModel):
    model_config = ConfigDict(extra="forbid")

    box: Box
    label: str | None = Field(None, description="name of a class; needed where the artifact has `classes`")
    ignore: bool = Field(False, description="neither a miss, nor is a detection of it a false alarm")


Targets = Annotated[
    list[Box | TargetBox], Field(description="boxes to find, in pixels of the upright photograph")
]


class LabelledData(ImageData):
    targets: Targets


class LabelledUrl(ImageUrl):
    targets: Targets


class EvaluateQuestion(EvaluateParameters):
    """Documentation alone: the body is read by `labelled_images`, whose messages say more."""

    images: list[LabelledData | LabelledUrl] = Field(min_length=1)


class Counts(BaseModel):
    score_threshold: float = Field(description="detections with a score above this count")
    hits: int
    false_alarms: int
    misses: int
    precision: float | None = Field(description="hits among the detections; null without detections")
    recall: float | None = Field(description="hits among the boxes; null without boxes")


class ClassFigures(Counts):
    boxes: int
    average_precision: float | None
    average_precision_50_95: float | None


class ImageFigures(BaseModel):
    width: int
    height: int
    hits: int
    false_alarms: int
    misses: int
    missed: list[int] = Field(description="which of the image's targets were not found")
    loss: float | None = Field(description="the model's loss of the hits; null without any")


class EvaluateAnswer(Counts):
    """Documentation alone: of all images that could be read."""

    images: list[ImageFigures | ImageError] = Field(description="in the order of the images")
    evaluated: int = Field(description="number of images that could be read")
    match_iou: float = Field(description="a detection hits a box of its class with at least this IoU")
    thresholds: list[Counts] = Field(description="the same at other score thresholds")
    best_f1: float
    recommended_threshold: float | None = Field(description="the score that gives the best F1")
    average_precision: float | None = Field(
        description="all-point interpolation, with classes the mean over those that have boxes; "
        "null for one image"
    )
    average_precision_50_95: float | None = Field(
        description="COCO's: the mean over IoU 0.5, 0.55, … 0.95, each sampled at 101 recalls, with classes "
        "the mean over those that have boxes; null for one image"
    )
    classes: dict[str, ClassFigures] = Field(
        {}, description="of each class that is there; only where the artifact has `classes`"
    )
    loss: float | None = Field(
        description="the model's loss of all hits; null without any, or without a loss"
    )


class LossQuestion(BaseModel):
    """Documentation alone: the body is read by `box_json`, whose messages say more."""

    model_config = ConfigDict(extra="forbid")

    predictions: list[Box] | list[list[Box]] = Field(
        description="[N][4], or a list of images with lists of boxes of any length; xyxy in pixels"
    )
    targets: list[Box] | list[list[Box]] = Field(
        description="of the same shape, or of as many images with at most as many boxes in each; an image's "
        "first target belongs to its first prediction, and so on. y2 = 0 marks an empty slot"
    )
    weights: list[Weight] | list[list[Weight]] | None = Field(
        None, description="of each target of [N][4], of each image, or of each target of each image"
    )
    per_image: bool = Field(False, description="whether the loss of each image alone is wanted, too")
    gradient: bool = Field(False, description="whether d loss / d predictions is wanted, too")


class LossAnswer(BaseModel):
    """Documentation alone."""

    loss: float | None = Field(
        description="sum(w * (1 - GIoU)) / max(sum(w), 1) over the slots whose target is not empty, w being "
        "1 without weights; another where the detector has its own"
    )
    slots: int = Field(description="number of those slots")
    per_image: list[float | None] = Field([], description="loss of each image alone; only if asked for")
    gradient: list[Any] = Field([], description="nested as predictions; only if asked for")


class Health(BaseModel):
    status: Literal["alive", "ready"]
    missing: list[str] = Field([], description="why some of several engines are not ready")


class V2Error(BaseModel):
    """Of every error under /v2."""

    error: str = Field(description="names the argument, the rule and the value received")


def inlined(model: type[BaseModel]) -> dict[str, Any]:
    """The schema of a model in one piece, for a place of the description where it can point to nothing."""
    schema = model.model_json_schema()
    definitions = schema.pop("$defs", {})

    def resolved(value: Any) -> Any:
        if isinstance(value, list):
            return [resolved(item) for item in value]
        if not isinstance(value, dict):
            return value
        if "$ref" in value:
            return resolved(definitions[value["$ref"].rpartition("/")[2]])
        return {key: resolved(item) for key, item in value.items()}

    document: dict[str, Any] = resolved(schema)
    return document


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """These statuses of an endpoint, for its description, as problem documents."""
    content = {"application/problem+json": {"schema": Problem.model_json_schema()}}
    return {status: {"description": HTTPStatus(status).phrase, "content": content} for status in statuses}
