"""The error that ended a program, found in the end of its untrusted output."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattloop_operator.reconcile.attempt.printed_error import (
    MAX_QUOTED_CHARACTERS,
    MAX_QUOTED_LINES,
    is_out_of_memory,
    printed_error,
    quoted_output,
)

TRACEBACK = 'Traceback (most recent call last):\n  File "/app/train.py", line 3, in <module>\n    run()\n'
MISSING = f"{TRACEBACK}ModuleNotFoundError: No module named 'torhc'\n"
RANKS = "".join(f"[rank1]: {line}\n" for line in MISSING.splitlines())
LAUNCHER = (
    'Traceback (most recent call last):\n  File "/bin/torchrun", line 8, in <module>\n    sys.exit(main())\n'
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n=====\n"
)
PEER = f"{TRACEBACK}torch.distributed.DistNetworkError: The client socket has failed to connect\n"
SHUTDOWN = (
    "Exception ignored in: <function Loader.__del__ at 0x7f>\n"
    f"{TRACEBACK}ImportError: sys.meta_path is None, Python is likely shutting down\n"
)
CHAINED = (
    f"{MISSING}\nDuring handling of the above exception, another exception occurred:\n\n{TRACEBACK}KeyError: 'a'\n"
)
USAGE = "usage: train.py [-h]\ntrain.py: error: unrecognized arguments: --bach 3\n"
SYNTAX = '  File "/app/train.py", line 1\n    for x in y print(x)\n               ^^^^^\nSyntaxError: invalid syntax\n'


@pytest.mark.parametrize(
    ("output", "name", "text"),
    [
        (MISSING, "ModuleNotFoundError", "ModuleNotFoundError: No module named 'torhc'"),
        (f"epoch 0\n{MISSING}Sentry is attempting to send 2 events\n", "ModuleNotFoundError", "torhc"),
        (RANKS + LAUNCHER, "ModuleNotFoundError", "torhc"),
        (MISSING + PEER, "ModuleNotFoundError", "torhc"),
        (f"{TRACEBACK}RuntimeError: CUDA error\n{SHUTDOWN}", "RuntimeError", "CUDA error"),
        (CHAINED, "KeyError", "KeyError: 'a'"),
        (SYNTAX, "SyntaxError", "invalid syntax"),
        (f"{TRACEBACK}torch.cuda.OutOfMemoryError: CUDA out of memory.", "OutOfMemoryError", "CUDA out of memory"),
        (f"{TRACEBACK}KeyboardInterrupt\n", "KeyboardInterrupt", "KeyboardInterrupt"),
        (USAGE, "", "train.py: error: unrecognized arguments: --bach 3"),
        ("sh: 1: pyton: not found\n", "", "pyton: not found"),
        ("bash: line 1: pyton: command not found\n", "", "command not found"),
        ("python: can't open file '/a/b.py': [Errno 2] No such file or directory\n", "FileNotFoundError", "b.py"),
        ("/usr/bin/python3.12: No module named trainer\n", "ModuleNotFoundError", "trainer"),
    ],
)
def test_the_exception_of_the_program_and_not_that_of_its_launcher_is_found(output: str, name: str, text: str) -> None:
    found = printed_error(output)
    assert found is not None
    assert found.name == name
    assert text in found.text


@pytest.mark.parametrize("output", ["", "epoch 3: loss 0.2\n", "ValueError: printed by the script itself\n", LAUNCHER])
def test_output_without_a_traceback_shows_no_error(output: str) -> None:
    assert printed_error(output) is None


def test_the_place_of_an_error_is_its_innermost_line() -> None:
    output = (
        'Traceback:\n  File "a.py", line 3, in <module>\n    f()\n  File "b.py", line 7, in f\n    g()\nKeyError: 1\n'
    )
    found = printed_error(output)
    assert found is not None
    assert found.place == "b.py:7 KeyError"


@pytest.mark.parametrize(
    "text",
    [
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
        "RuntimeError: CUDA error: out of memory",
        "RuntimeError: [enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory",
        "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory",
        "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 3 GiB",
        "terminate called after throwing an instance of 'std::bad_alloc'",
        "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED",
        "container train ran out of memory (OOMKilled, exit code 137)",
        "It is possible that dataloader's workers are out of shared memory",
    ],
)
def test_a_lack_of_memory_is_known_in_the_words_of_each_library(text: str) -> None:
    assert is_out_of_memory(text)


def test_a_line_of_the_script_in_a_traceback_names_no_lack_of_memory() -> None:
    source = "    except torch.cuda.OutOfMemoryError:\n"
    assert not is_out_of_memory(f"{TRACEBACK}{source}SyntaxError: expected 'except' or 'finally' block\n")


@given(st.text() | st.text('Traceback(mostrecentcalllast): \n"File ,l0123456789[]rank\x1b\u202e'))
def test_untrusted_output_never_fails_and_its_quotes_are_short_and_printable(output: str) -> None:
    found = printed_error(output)
    assert found is None or (found.text + found.place).isprintable()
    lines = quoted_output(output).split("\n")[1:]
    assert len(lines) <= MAX_QUOTED_LINES
    # An escape has up to ten characters.
    assert all(line.isprintable() and len(line) <= 10 * MAX_QUOTED_CHARACTERS + 3 for line in lines)
