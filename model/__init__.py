"""The protocol of detectors, the face detector and its weights files, and the article's network."""

from lensbox.model.article_net import ArticleNet
from lensbox.model.config import DetectorConfig
from lensbox.model.face_detector import FaceDetector
from lensbox.model.protocol import Detector, DetectorSpec, OptionalMethods
from lensbox.model.protocol_check import faults_of
from lensbox.model.weights_file import (
    load_detector,
    read_metadata,
    recommended_threshold,
    save_detector,
    weights_sha256,
)

__all__ = [
    "ArticleNet",
    "Detector",
    "DetectorConfig",
    "DetectorSpec",
    "FaceDetector",
    "OptionalMethods",
    "faults_of",
    "load_detector",
    "read_metadata",
    "recommended_threshold",
    "save_detector",
    "weights_sha256",
]
