"""`lensbox bench photo`: from a photograph to boxes, beside Pillow and OpenCV."""
