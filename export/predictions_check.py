"""Whether another runtime's raw predictions are those of the detector, up to rounding."""

import torch
from torch import Tensor

Predictions = tuple[Tensor, Tensor]  # boxes [B, A, 4] and logits [B, A], as of `FaceDetector.forward`

# How far float32 on a CPU may drift through some forty convolutions whose sums are taken in another order.
LOGIT_TOLERANCE = 1e-3
BOX_TOLERANCE = 0.01  # pixels, for coordinates on the canvas
BOX_RELATIVE_TOLERANCE = 1e-4  # beyond it: sides are exponentials, up to 4,700 px


def prediction_failures(actual: Predictions, expected: Predictions) -> list[str]:
    """What differs by more than rounding, one sentence each; empty where nothing does. NaN never passes."""
    failures = []
    slack = BOX_RELATIVE_TOLERANCE * expected[0].abs()
    for name, value, wanted, tolerance in (
        ("boxes", actual[0], expected[0], BOX_TOLERANCE + slack),
        ("logits", actual[1], expected[1], torch.tensor(LOGIT_TOLERANCE)),
    ):
        if value.dtype != wanted.dtype or value.shape != wanted.shape:
            failures.append(
                f"{name} must be {wanted.dtype} of shape {list(wanted.shape)}, "
                f"got {value.dtype} of shape {list(value.shape)}"
            )
            continue
        difference = (value - wanted).abs()
        if not bool((difference <= tolerance).all()):
            failures.append(f"{name} differ by up to {float(difference.max()):.3g}")
    return failures
