"""The linear algebra of Wattloop's own commands uses one thread.

The matrices of a decision are small: with a thread for each processor OpenBLAS takes twice the processor
time, and on a busy machine the threads wait for each other.
"""

from __future__ import annotations

import os

VARIABLE = "OPENBLAS_NUM_THREADS"
_GIVEN = os.environ.get(VARIABLE)


def use_one_thread() -> None:
    """Has an effect until NumPy is imported, and none if the user has set the variable."""
    os.environ.setdefault(VARIABLE, "1")


def users_environment() -> dict[str, str]:
    """The environment that the user gave, for a training, which may use all processors.

    Example:
        >>> use_one_thread()
        >>> users_environment().get(VARIABLE) == _GIVEN
        True
    """
    environment = dict(os.environ)
    if _GIVEN is None:
        environment.pop(VARIABLE, None)
    return environment
