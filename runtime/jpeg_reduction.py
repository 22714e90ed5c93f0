"""At which of libjpeg's scales a JPEG file is decoded: `docs/artifact.md`, "Reading images"."""

_REDUCTIONS = (8, 4, 2)


def jpeg_reduction(width: int, height: int, canvas_width: int, canvas_height: int, oversampling: int) -> int:
    """The r of the scale 1/r, which is 1, 2, 4 or 8, for a canvas.

    width, height: of the upright photograph. The largest r whose sides, ceil(width / r) and ceil(height / r),
    are at least `oversampling` times those that the canvas needs. An oversampling of 0 means 1: in full.
    """
    if oversampling == 0:
        return 1
    needed_width, needed_height = _fit(width, height, canvas_width, canvas_height)
    for reduction in _REDUCTIONS:
        # ceil(a / r) >= b for whole numbers
        if -(-width // reduction) >= oversampling * needed_width and (
            -(-height // reduction) >= oversampling * needed_height
        ):
            return reduction
    return 1


def _fit(width: int, height: int, canvas_width: int, canvas_height: int) -> tuple[int, int]:
    """Width and height of a picture in the canvas, as `ops/csrc/fit.h` decides them."""
    if width * canvas_height >= height * canvas_width:
        return canvas_width, max(1, _rounded_quotient(height * canvas_width, width))
    return max(1, _rounded_quotient(width * canvas_height, height)), canvas_height


def _rounded_quotient(a: int, b: int) -> int:
    """a / b, rounded half up."""
    return (2 * a + b) // (2 * b)
