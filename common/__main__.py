"""`python -m lensbox.common` does what `lensbox` does."""

import sys

from lensbox.common.main import main

sys.exit(main())
