"""``python -m support.fuzzing``."""

import sys

from support.fuzzing.campaign import main

if __name__ == "__main__":
    sys.exit(main())
