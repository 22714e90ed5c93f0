"""How many images an engine takes at a time."""

import torch

# On two cores a batch of 8 took 1.9 ms an image, one image 3.4, and 32 at a time 3.5: they leave the caches.
_LARGEST_ON_CPU = 8
LARGEST_ON_GPU = 64


def largest_batch(device: torch.device) -> int:
    """The default of `--max-batch`, measured with the shipped detector."""
    return _LARGEST_ON_CPU if device.type == "cpu" else LARGEST_ON_GPU


def batch_sizes(largest: int) -> list[int]:
    """Powers of two below `largest`, and `largest`: what is warmed up, and on a GPU captured.

    A batch between two of them runs as the next one, so none takes twice the time that it needs.
    """
    return [*(1 << exponent for exponent in range((largest - 1).bit_length())), largest]
