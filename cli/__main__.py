"""`python -m lensbox.cli` does what `lensbox` does."""

import sys

from lensbox.cli.dispatch import main

sys.exit(main())
