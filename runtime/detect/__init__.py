"""Detection with a loaded artifact: batches, tiles, thresholds, boxes in pixels of the photograph."""
