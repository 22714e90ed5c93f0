"""A small detector and its artifact."""

from artifact_fixtures import artifact_path, detector, onnx_path, package_path, program_path

__all__ = ["artifact_path", "detector", "onnx_path", "package_path", "program_path"]
