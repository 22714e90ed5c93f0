"""The fused masked loss in Triton, forward and backward."""

import torch

from lensbox.bench.peers.peer import Loss, UnavailableError


def load_loss(device: torch.device) -> Loss:
    if device.type != "cuda":
        raise UnavailableError("Triton compiles for GPUs")
    try:
        import triton  # noqa: F401  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise UnavailableError(f"triton cannot be imported: {error}") from error
    from lensbox.bench.peers.triton_kernels import masked_loss

    return lambda batch, pred: masked_loss(pred, batch.target)
