"""Writes the artifact: `python export/script_model.py [--model MODULE:NAME] [--weights F] [--output F]`."""

import sys

from lensbox.cli import main

if __name__ == "__main__":
    raise SystemExit(main(["export", *sys.argv[1:]]))
