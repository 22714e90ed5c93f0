"""Asks a running service from Python, and `lensbox detect`, which asks one or runs the detector itself.

Importing it takes no torch.
"""

from lensbox.client.answers import Detection, ImageDetections, LossAnswer
from lensbox.client.client import Client
from lensbox.client.errors import ServiceError

__all__ = ["Client", "Detection", "ImageDetections", "LossAnswer", "ServiceError"]
