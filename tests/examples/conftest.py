"""The examples are programs whose modules lie beside them."""

import sys
from pathlib import Path

PIPELINE = Path(__file__).parents[2] / "examples" / "pipeline"
if str(PIPELINE) not in sys.path:
    sys.path.append(str(PIPELINE))
