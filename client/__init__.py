"""A client of a running service, over HTTP alone. Importing this package does not import torch."""

from lensbox.client.answers import LossAnswer, ServiceError
from lensbox.client.client import Client
from lensbox.common.detections import Detection, ImageDetections

__all__ = ["Client", "Detection", "ImageDetections", "LossAnswer", "ServiceError"]
