"""A client of a running service, and `lensbox detect`, which asks a service or runs the detector itself.

Importing this package does not import torch.
"""

from lensbox.client.answers import Detection, ImageDetections, Limits, LossAnswer, Model, ServiceError
from lensbox.client.client import Client

__all__ = [
    "Client",
    "Detection",
    "ImageDetections",
    "Limits",
    "LossAnswer",
    "Model",
    "ServiceError",
]
