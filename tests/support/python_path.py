"""The path of packages for the processes that tests start: sources on PYTHONPATH take precedence there, too."""

import os
from pathlib import Path

_GIVEN = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
PYTHON_PATH = os.pathsep.join([str(Path(__file__).parents[1]), *(str(Path(each).absolute()) for each in _GIVEN)])
"""The value of PYTHONPATH with which a process imports `support`, and everything else as this process does."""
