"""The fused masked loss in Triton, forward and backward."""

import torch

from lensbox.bench.peers.peer import Loss, PaddedLoss, UnavailableError


def load_padded_loss(device: torch.device) -> PaddedLoss:
    if device.type != "cuda":
        raise UnavailableError("Triton compiles for GPUs")
    try:
        import triton  # noqa: F401  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise UnavailableError(f"triton cannot be imported: {error}") from error
    from lensbox.bench.peers.triton_kernels import masked_loss

    return masked_loss


def load_loss(device: torch.device) -> Loss:
    masked_loss = load_padded_loss(device)
    return lambda batch, pred: masked_loss(pred, batch.target)
