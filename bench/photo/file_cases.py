"""From an image file to boxes: each step of our own and of the previous code, the whole of every chain."""

from functools import cache, partial

from lensbox.bench.comparison import Call, call_series, clock_of, complete_series
from lensbox.bench.measurement import Effort
from lensbox.bench.photo import check
from lensbox.bench.photo.case import Case, Way
from lensbox.bench.photo.chains import CHAINS, LENSBOX, PREVIOUS, Chain
from lensbox.bench.photo.photographs import Photograph
from lensbox.bench.photo.subject import Subject
from lensbox.bench.timing import Series

DECODE, LETTERBOX, DETECT, RESTORE, TO_BOXES = "decode", "letterbox", "detect", "restore", "to boxes"
_STEPS = (DECODE, LETTERBOX, DETECT, RESTORE)


def file_case(subject: Subject, photograph: Photograph, by_steps: bool) -> Case:
    """by_steps: whether the steps of our own and of the previous code are timed one by one, too."""
    chains = {name: cache(partial(_checked_chain, name, subject, photograph)) for name in CHAINS}
    timed = [(step, name) for step in _STEPS for name in (LENSBOX, PREVIOUS)] if by_steps else []
    timed += [(TO_BOXES, name) for name in CHAINS]

    def prepare(step: str, name: str, effort: Effort) -> Series:
        call = _call(step, chains[name](), photograph.file)
        if subject.device.type == "cuda":
            return complete_series(call, effort)
        return call_series(call, effort, clock_of(subject.threads))

    return Case(photograph.name, [Way(step, name, partial(prepare, step, name)) for step, name in timed])


def _call(step: str, chain: Chain, file: bytes) -> Call:
    if step == TO_BOXES:
        return partial(chain.to_boxes, file)
    steps = chain.steps
    assert steps is not None, "only chains with steps are timed by steps"
    if step == DECODE:
        return partial(steps.decode, file)
    image = steps.decode(file)
    if step == LETTERBOX:
        return partial(steps.letterbox, image)
    canvases, geometry = steps.letterbox(image)
    if step == DETECT:
        return partial(steps.detect, canvases)
    return partial(steps.restore, steps.detect(canvases), geometry)


def _checked_chain(name: str, subject: Subject, photograph: Photograph) -> Chain:
    """Raises WrongAnswerError."""
    chain, file = CHAINS[name](subject), photograph.file
    found, expected = chain.to_boxes(file), check.expected_detections(file, subject)
    if name != LENSBOX:
        check.require_same_faces(found, expected)
        return chain
    steps = chain.steps
    assert steps is not None
    canvases, geometry = steps.letterbox(steps.decode(file))
    check.require_same_bytes("canvas", canvases, check.expected_canvas(file, subject))
    by_steps = steps.restore(steps.detect(canvases), geometry)
    pixels = max(photograph.width / subject.canvas.width, photograph.height / subject.canvas.height)
    for answer in (found, by_steps):
        check.require_equal_detections(answer, expected, subject, pixels)
    return chain
