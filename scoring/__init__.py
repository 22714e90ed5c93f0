"""How well detections fit labelled boxes."""
