"""Writes the artifact: `python export/script_model.py [--weights F] [--output artifacts/detector.pt]`."""

import sys

from lensbox.cli import main

if __name__ == "__main__":
    raise SystemExit(main(["export", *sys.argv[1:]]))
