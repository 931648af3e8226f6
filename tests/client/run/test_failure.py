"""An exception that ends a process is distinguished from one that follows from another process."""

import pytest

from wattloop.run.training_progress import failure_name, is_consequence


class DistBackendError(RuntimeError):
    """As PyTorch's, by its name."""


def wrapped(error: BaseException) -> BaseException:
    outer = ValueError("cleaning up failed")
    outer.__context__ = error
    return outer


GLOO = RuntimeError("[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]")


@pytest.mark.parametrize(
    ("error", "consequence"),
    [
        (GLOO, True),
        (wrapped(GLOO), True),
        (DistBackendError("remote process exited"), True),
        (BrokenPipeError(), True),
        (SystemExit(143), True),
        (RuntimeError("CUDA error: out of memory"), False),
        (ValueError("closed by peer"), False),
        (RuntimeError({"nccl": 1}), False),
        (wrapped(KeyError("x")), False),
    ],
)
def test_a_lost_connection_and_a_signal_follow_from_another_process(error: BaseException, consequence: bool) -> None:
    assert is_consequence(error) is consequence


def test_the_name_of_an_exception_is_bounded_ascii() -> None:
    assert failure_name(type("Fehler" + chr(0xDC) + "x" * 100, (Exception,), {})()) == "Fehler?" + "x" * 57
