"""Runs artifacts from Python: the twin of `cpp_runtime/`."""

from lensbox.errors import ArtifactError
from lensbox.runtime.artifact import Artifact, load_artifact
from lensbox.runtime.detection import Detections
from lensbox.runtime.image_io import read_image

__all__ = ["Artifact", "ArtifactError", "Detections", "load_artifact", "read_image"]
