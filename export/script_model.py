"""Write the artifact: `python export/script_model.py [--model MODULE:NAME] [--weights F] [--output F]`."""

import sys
from pathlib import Path

# Python searches the folder of a script first: modules of this folder must not hide others of the same name.
if sys.path and sys.path[0] and Path(sys.path[0]).resolve() == Path(__file__).resolve().parent:
    del sys.path[0]

from lensbox.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main(["export", *sys.argv[1:]]))
