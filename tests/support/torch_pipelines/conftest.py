"""Most parts of the suite run in an environment without PyTorch, and search these modules for doctests."""

import importlib.util

if importlib.util.find_spec("torch") is None:
    collect_ignore_glob = ["*.py"]
