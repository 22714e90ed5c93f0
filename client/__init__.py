"""A client of a running service, and the command `lensbox detect`, which uses a service or an artifact.

Importing this package does not import torch.
"""

from lensbox.client.answers import Detection, ImageDetections, LossAnswer, Model, ServiceError
from lensbox.client.client import Client

__all__ = ["Client", "Detection", "ImageDetections", "LossAnswer", "Model", "ServiceError"]
