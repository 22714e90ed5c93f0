"""Draws detections on pictures. Needs Pillow alone."""

from lensbox.drawing.annotate import annotate

__all__ = ["annotate"]
