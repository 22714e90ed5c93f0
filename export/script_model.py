"""Writes the artifact: `python export/script_model.py [--weights F] [--output artifacts/detector.pt]`."""

import sys

from lensbox.export.cli import main

if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
