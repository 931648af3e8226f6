"""The values of Wattloop's variables in a program for a shell."""

import shlex
import subprocess
import time

import pytest

from wattloop_operator.workloads.injection import TemplateError
from wattloop_operator.workloads.ray_job import MAX_PROGRAM_BYTES, with_values

# With characters of a shell.
GRID = '{"at": [0.5], "it": "is $(not) a word"}'


def made(program: str, grid: str = GRID) -> str:
    return with_values(program, {"WATTLOOP_BATCH_SIZE": "64", "WATTLOOP_PARAM_GRID": grid})


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ("$(WATTLOOP_PARAM_GRID)", [GRID]),
        ("--grid=$(WATTLOOP_PARAM_GRID)", ["--grid=" + GRID]),
        ('"of $(WATTLOOP_PARAM_GRID)!"', [f"of {GRID}!"]),
        ("'of $(WATTLOOP_PARAM_GRID)!'", [f"of {GRID}!"]),
        (r'a\" "\"$(WATTLOOP_PARAM_GRID)"', ['a"', '"' + GRID]),
        (r"""'a\' "it's $(WATTLOOP_PARAM_GRID)" """, ["a\\", f"it's {GRID}"]),
        ("$$(WATTLOOP_PARAM_GRID)", ["$(WATTLOOP_PARAM_GRID)"]),
        ("$$$(WATTLOOP_BATCH_SIZE) $$", ["$64", "$$"]),
    ],
)
def test_a_value_is_one_word_of_the_shell_also_in_quotes_and_two_dollars_keep_a_reference(
    argument: str, words: list[str]
) -> None:
    assert shlex.split(made(f"train {argument}")) == ["train", *words]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("# don't retry $(WATTLOOP_PARAM_GRID)\ntrain '$(WATTLOOP_PARAM_GRID)'", [GRID]),
        ("""a#b' '\\ #"$(WATTLOOP_PARAM_GRID)" """, [f"a#b  #{GRID}"]),
        ("$(WATTLOOP_BATCH_SIZE)#'$(WATTLOOP_PARAM_GRID)'", [f"64#{GRID}"]),
        ("1 \\\n# it's '\ntrain $(WATTLOOP_PARAM_GRID)", ["1", GRID]),
        ("""\\ #"$(WATTLOOP_PARAM_GRID)";# '\ntrain '$(WATTLOOP_PARAM_GRID)'""", [f" #{GRID}", GRID]),
        (r"""\$(WATTLOOP_BATCH_SIZE)\\"$(WATTLOOP_PARAM_GRID)" """, [f"64\\{GRID}"]),
    ],
)
def test_a_comment_of_the_shell_begins_with_a_word_and_opens_no_quote(arguments: str, words: list[str]) -> None:
    prints = """train() { for each in "$@"; do printf '%s\\n' "$each"; done; }\ntrain """
    shell = ["sh", "-c", prints + made(arguments)]
    assert subprocess.run(shell, check=True, capture_output=True, text=True).stdout.splitlines() == words


def test_a_value_in_the_quotes_of_an_inner_shell_is_one_word_of_that() -> None:
    program = made("""bash -c "train '$(WATTLOOP_PARAM_GRID)'" """)
    assert shlex.split(shlex.split(program)[2]) == ["train", GRID]


@pytest.mark.parametrize("part", ["$(WATTLOOP_PARAM_GRID) ", "$"])
def test_the_longest_program_takes_no_long_time(part: str) -> None:
    program = part * (MAX_PROGRAM_BYTES // len(part))
    began_seconds = time.thread_time()
    made(program, grid="a b")
    # A time that grows with the square of the length would be many seconds.
    assert time.thread_time() - began_seconds < 2


def test_a_program_that_its_values_make_longer_than_linux_starts_is_refused() -> None:
    with pytest.raises(TemplateError, match=f"entrypoint has more than {MAX_PROGRAM_BYTES} bytes with the values"):
        made("$(WATTLOOP_PARAM_GRID) " * 2_000, grid="a b" * 50)
