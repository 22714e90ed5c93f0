"""torchvision's SSDlite as a detector: its network, and `lensbox::padded_nms` in place of its NMS."""

from collections.abc import Sequence
from pathlib import Path

import torch
from fcos import Dense
from torch import Tensor, nn
from torchvision.models.detection import SSDLite320_MobileNet_V3_Large_Weights, ssdlite320_mobilenet_v3_large
from torchvision.models.detection.ssd import SSD

CATEGORIES = SSDLite320_MobileNet_V3_Large_Weights.COCO_V1.meta["categories"]  # 0 is the background


def ssdlite(weights: str | Path | None = None) -> nn.Module:
    """Return the detector of COCO's 80 classes, for `--model`; weights as for `make_network`."""
    return SsdLite(make_network(weights), CATEGORIES)


def make_network(weights: str | Path | None = None) -> SSD:
    """Return torchvision's detector, in eval mode.

    weights: file such as torchvision's ssdlite320_mobilenet_v3_large_coco-a79551df.pth; None: random ones.
    """
    network = ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=len(CATEGORIES))
    if weights is None:
        fill_with_noise(network)
    else:
        network.load_state_dict(torch.load(weights, map_location="cpu", weights_only=True))
    return network.eval()


class SsdLite(Dense):
    """Compute torchvision's SSD after its resizing of images. TorchScript compiles it."""

    def __init__(self, network: SSD, categories: Sequence[str]) -> None:
        # COCO skips some of its numbers: these are no classes, and neither is the background.
        named = [number for number, name in enumerate(categories) if number > 0 and name != "N/A"]
        classes = [categories[number] for number in named]
        super().__init__(network, network.transform.fixed_size, "ssdlite320_mobilenet_v3_large", classes)
        self.largest_exponent = network.box_coder.bbox_xform_clip
        self.register_buffer("named", torch.tensor(named))

    def scores(self, raw: dict[str, Tensor]) -> Tensor:
        return raw["cls_logits"].softmax(dim=2)[:, :, self.named]

    def decode(self, codes: Tensor, anchors: Tensor) -> Tensor:
        """Return boxes [N, 4] of SSD's codes, center and size relative to the anchors, times 10 and 5."""
        size = anchors[:, 2:] - anchors[:, :2]
        center = codes[:, :2] / 10 * size + (anchors[:, :2] + 0.5 * size)
        half = 0.5 * (torch.exp((codes[:, 2:] / 5).clamp(max=self.largest_exponent)) * size)
        return torch.cat([center - half, center + half], dim=1)


@torch.no_grad()
def fill_with_noise(network: SSD, seed: int = 0) -> None:
    """Set random weights whose detections differ between pictures and have clear scores."""
    generator = torch.Generator().manual_seed(seed)
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d):
            layer.weight.normal_(0, (2 / layer.weight[0].numel()) ** 0.5, generator=generator)
    network.eval()
    coarse = torch.rand(8, 3, 12, 12, generator=generator)
    pictures = nn.functional.interpolate(coarse, network.transform.fixed_size, mode="bilinear")
    features = network.backbone(2 * pictures - 1).values()
    for head, spread in ((network.head.classification_head, 3.0), (network.head.regression_head, 0.2)):
        for block, feature in zip(head.module_list, features, strict=True):
            output, last = block(feature), block[-1]
            last.weight *= spread / output.std()
            last.bias = nn.Parameter(-output.mean(dim=(0, 2, 3)) * spread / output.std())
