"""`lensbox bench detector`: the face detector by format, precision and batch size."""
