"""From what was found to the body of an inference answer."""

import json
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from lensbox.serve.engine.jobs import CanvasDetections
from lensbox.serve.errors import ApiError
from lensbox.serve.v2.infer_request import InferRequest, Wanted
from lensbox.serve.v2.model_tensors import DATATYPES

MODEL_VERSION = "1"  # the only one of an artifact

# Numbers of an answer. As text one takes up to 25 bytes, and its time.
_MOST_NUMBERS = {True: 1 << 24, False: 1 << 20}
_PIECE = 4096  # numbers that become text without letting other threads run


class InferAnswer(NamedTuple):
    """parts: the body; header_length: of the JSON in it if binary tensors follow, else None."""

    parts: list[bytes | memoryview]
    header_length: int | None

    @property
    def size(self) -> int:
        return sum(len(part) for part in self.parts)


def check_answer_size(images: int, wanted: Sequence[Wanted]) -> None:
    """Raises ApiError (413) for an answer that would be too large. Sides that vary are not counted."""
    for binary, most in _MOST_NUMBERS.items():
        numbers = sum(
            math.prod(side for side in wish.output.shape if side > 0)
            for wish in wanted
            if wish.binary is binary
        )
        if images * numbers > most:
            form = "binary" if binary else "JSON"
            raise ApiError(
                413,
                "answer_too_large",
                f"an answer can have at most {most} numbers as {form}, {most // numbers} images of these "
                f"outputs; got {images} images",
            )


def infer_answer(request: InferRequest, model_name: str, found: CanvasDetections) -> InferAnswer:
    """The answer of a model to a request."""
    outputs = _outputs(found)
    texts: list[str] = []
    binaries: list[bytes | memoryview] = []
    for output, binary in request.wanted:
        values = outputs[output.name].contiguous()
        # By what came out, not by what the artifact says of itself.
        described = f'"name":{json.dumps(output.name)},"datatype":"{DATATYPES[values.dtype]}"'
        described += f',"shape":{json.dumps(list(values.shape), separators=(",", ":"))}'
        if binary:
            content = values.view(-1).numpy().view(np.uint8).data
            described += f',"parameters":{{"binary_data_size":{len(content)}}}'
            binaries.append(content)
        else:
            described += f',"data":[{",".join(_texts(values.view(-1).numpy()))}]'
        texts.append(f"{{{described}}}")
    start = {"model_name": model_name, "model_version": MODEL_VERSION}
    if request.id is not None:
        start = {"id": request.id, **start}
    header = f'{json.dumps(start, separators=(",", ":"))[:-1]},"outputs":[{",".join(texts)}]}}'.encode()
    return InferAnswer([header, *binaries], len(header) if binaries else None)


def _outputs(found: CanvasDetections) -> dict[str, Tensor]:
    """By name; counts in the datatype that they have whatever the detector makes of them."""
    labels = {} if found.labels is None else {"labels": found.labels}
    counts = found.counts.int()
    return {"boxes": found.boxes, "scores": found.scores, "counts": counts, **labels, **found.extras}


def _texts(values: NDArray[np.generic]) -> Iterator[str]:
    """Numbers as JSON, a piece at a time; what is not finite is null, since JSON has no other word for it."""
    for start in range(0, len(values), _PIECE):
        piece = values[start : start + _PIECE]
        numbers = piece.tolist()
        if not np.isfinite(piece).all():
            numbers = [number if math.isfinite(number) else None for number in numbers]
        yield json.dumps(numbers, separators=(",", ":"))[1:-1]
