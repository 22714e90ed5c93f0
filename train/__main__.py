"""`python -m lensbox.train …` is `lensbox train …`, for machines without the installed command."""

import sys

from lensbox.train.commands.train import train_main

if __name__ == "__main__":
    sys.exit(train_main(sys.argv[1:]))
