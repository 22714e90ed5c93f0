"""`python -m lensbox.cli` does what `lensbox` does."""

import sys

from lensbox.cli.main import main

sys.exit(main())
