"""The detector whose way to boxes is timed."""

from photo_fixtures import subject

__all__ = ["subject"]
