"""Run artifacts from Python. `cpp_runtime/` does the same in C++."""

from lensbox.common.canvas import Canvas
from lensbox.common.detections import TileSpec
from lensbox.common.errors import ArtifactError
from lensbox.runtime.detect.artifact import Artifact
from lensbox.runtime.detect.detection import Detections
from lensbox.runtime.file.metadata import Reading
from lensbox.runtime.images.files import read_image, read_photo
from lensbox.runtime.images.photo import Photo
from lensbox.runtime.loading import load_artifact

__all__ = [
    "Artifact",
    "ArtifactError",
    "Canvas",
    "Detections",
    "Photo",
    "Reading",
    "TileSpec",
    "load_artifact",
    "read_image",
    "read_photo",
]
