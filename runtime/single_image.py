"""Artifacts of format 1, whose methods take one image at a time."""

import torch
from torch import Tensor


class SingleImageMethods:
    """The methods of the newest format, made of those of a module of format 1."""

    def __init__(self, module: torch.jit.ScriptModule) -> None:
        self._module = module
        self.detect = module.detect
        self.loss = module.loss

    def preprocess(self, images: list[Tensor], windows: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Canvases [B, c, h, w] and geometry [B, 6] of whole photographs; ValueError for windows."""
        if windows is not None:
            raise ValueError(
                "photographs for an artifact of format 1 must be whole and at full size, got a window"
            )
        canvases, geometry = zip(*(self._module.preprocess(image) for image in images), strict=True)
        return torch.stack(canvases), torch.stack(geometry)

    def restore(self, boxes: Tensor, geometry: Tensor) -> Tensor:
        """Boxes [B, K, 4] in pixels of the photographs; geometry: [B, 6]."""
        restored = (self._module.restore(*pair) for pair in zip(boxes, geometry, strict=True))
        return torch.stack(list(restored))
