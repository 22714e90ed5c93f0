"""The verifier: reference detections, comparisons of files with their detector, self-tests."""
