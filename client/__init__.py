"""A client of a running service, over HTTP alone. Importing this package does not import torch."""

from lensbox.client.client import Client, LossAnswer, ServiceError
from lensbox.common.detections import Detection, ImageDetections

__all__ = ["Client", "Detection", "ImageDetections", "LossAnswer", "ServiceError"]
