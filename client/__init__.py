"""Asks a running service from Python, and `lensbox detect`, which asks one or runs the detector itself.

Importing it takes no torch.
"""

from lensbox.client.answers import Detection, ImageDetections, LossAnswer
from lensbox.client.client import Client
from lensbox.client.errors import ServiceError
from lensbox.client.evaluation import ClassEvaluation, Counts, Evaluation, ImageEvaluation, Target
from lensbox.client.model import Limits, Model

__all__ = [
    "ClassEvaluation",
    "Client",
    "Counts",
    "Detection",
    "Evaluation",
    "ImageDetections",
    "ImageEvaluation",
    "Limits",
    "LossAnswer",
    "Model",
    "ServiceError",
    "Target",
]
