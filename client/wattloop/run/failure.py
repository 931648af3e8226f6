"""How a process names the exception that ends it, so that the operator finds the rank that failed first."""

from __future__ import annotations

from wattloop.printable import ascii_text
from wattloop.wire.training_messages import MAX_FAILURE_CHARACTERS

MAX_CHAIN = 8
MAX_TEXT_CHARACTERS = 4000
# Handlers of signals raise the latter two.
OUTSIDE_ERRORS = (ConnectionError, SystemExit, KeyboardInterrupt)
# PyTorch's exceptions of collective operations, stores and sockets, and of signals in its launcher and Lightning.
PEER_ERRORS = frozenset(
    {"DistBackendError", "DistNetworkError", "DistStoreError", "SignalException", "SIGTERMException"}
)
# What gloo, NCCL and their sockets say in a RuntimeError.
PEER_TEXTS = ("closed by peer", "reset by peer", "broken pipe", "gloo/transport", "nccl", "processgroup")


def failure_name(error: BaseException) -> str:
    """Name of an exception's type, in printable ASCII.

    Example:
        >>> failure_name(ValueError("x"))
        'ValueError'
    """
    return ascii_text(type(error).__name__, MAX_FAILURE_CHARACTERS) or "Exception"


def is_consequence(error: BaseException) -> bool:
    """Whether an exception follows from another process: a lost connection to it, or a signal of the launcher.

    When a process of a distributed training dies, the others fail in their next collective operation. PyTorch has
    exceptions of their own for some of these failures, and a RuntimeError for others, which only its text tells.
    The launcher ends the others by a signal, for which a script may have a handler that raises.

    Example:
        >>> is_consequence(RuntimeError("[gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.7]:4321"))
        True
        >>> is_consequence(RuntimeError("CUDA out of memory")), is_consequence(ConnectionResetError())
        (False, True)
    """
    current: BaseException | None = error
    for _ in range(MAX_CHAIN):
        if current is None:
            return False
        if isinstance(current, OUTSIDE_ERRORS) or type(current).__name__ in PEER_ERRORS:
            return True
        if isinstance(current, RuntimeError) and _names_peer(current):
            return True
        current = current.__cause__ or current.__context__
    return False


def _names_peer(error: RuntimeError) -> bool:
    text = " ".join(each for each in error.args if isinstance(each, str))[:MAX_TEXT_CHARACTERS].lower()
    return any(each in text for each in PEER_TEXTS)
