"""A small artifact, and an exported program."""

from artifact_fixtures import artifact_path, detector, program_path

__all__ = ["artifact_path", "detector", "program_path"]
