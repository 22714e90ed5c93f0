"""The verifier: references, the comparison of files with their detector, self-tests."""
