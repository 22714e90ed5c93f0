"""What this installation is made of, for a bug report: `python -m lensbox.info` prints it."""
