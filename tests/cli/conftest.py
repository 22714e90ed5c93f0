"""A small artifact."""

from artifact_fixtures import artifact_path, detector

__all__ = ["artifact_path", "detector"]
