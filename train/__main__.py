"""`python -m lensbox.train …` is `lensbox train …`, for machines without the installed command."""

import sys

from lensbox.common.main import main

if __name__ == "__main__":
    sys.exit(main(["train", *sys.argv[1:]]))
