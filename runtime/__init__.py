"""Runs artifacts from Python: the twin of `cpp_runtime/`."""

from lensbox.errors import ArtifactError
from lensbox.runtime.artifact import Artifact, Detections, load_artifact
from lensbox.runtime.image_io import read_image

__all__ = ["Artifact", "ArtifactError", "Detections", "load_artifact", "read_image"]
