"""Puts the values of Wattloop's variables into a program for a shell, each as one word or as a part of one."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping

from wattloop_operator.workloads.injection import TemplateError

# Linux starts no program with a longer argument.
MAX_PROGRAM_BYTES = 128 * 1024
REFERENCE = r"(?P<dollars>(?<!\$)\$+)\((?P<name>WATTLOOP_[A-Z0-9_]+)\)"
# By the quote that is open: what a shell reads there as one, or changes the open quote. A comment ends with its line.
TOKENS = {
    "": re.compile(rf"""{REFERENCE}|\\(?:\n|[^$]\#*)|(?<![^\s;&|(<>])\#[^\n]*|(?P<quote>['"])"""),
    '"': re.compile(rf"""{REFERENCE}|\\[^$]|(?P<quote>")"""),
    "'": re.compile(rf"{REFERENCE}|(?P<quote>')"),
}


def with_values(program: str, variables: Mapping[str, str]) -> str:
    """A program with the values of Wattloop's variables, as Kubernetes puts them into the args of a container.

    The shell that would look them up is that of the pod that submits the program, which does not have them.

    Args:
        program: The program of a RayJob, for a shell.
        variables: The values, by name.

    Raises:
        TemplateError: It would be too long for Linux.

    Example:
        >>> with_values("train --batch $(WATTLOOP_BATCH_SIZE) --lr $(LR)", {"WATTLOOP_BATCH_SIZE": "64"})
        'train --batch 64 --lr $(LR)'
    """
    parts, room = [], MAX_PROGRAM_BYTES
    for part in _parts_with_values(program, variables):
        room -= len(part.encode(errors="surrogatepass"))
        if room < 0:
            raise TemplateError(
                f"spec.template.spec.entrypoint has more than {MAX_PROGRAM_BYTES} bytes with the values of "
                "Wattloop's variables; remove references: the program has the variables in its environment"
            )
        parts.append(part)
    return "".join(parts)


def _parts_with_values(program: str, variables: Mapping[str, str]) -> Iterator[str]:
    begin, open_quote = 0, ""
    while found := TOKENS[open_quote].search(program, begin):
        yield program[begin : found.start()]
        yield found[0] if found["name"] is None else _value(found, variables, open_quote)
        begin = found.end()
        if found["quote"] is not None:
            open_quote = "" if open_quote else found["quote"]
    yield program[begin:]


def _value(found: re.Match[str], variables: Mapping[str, str], open_quote: str) -> str:
    """The value of a variable that is referred to, as one word of the shell or as a part of one."""
    # Two dollars are one that refers to nothing.
    kept, refers = divmod(len(found["dollars"]), 2)
    if not refers or found["name"] not in variables:
        return "$" * (kept + refers) + f"({found['name']})"
    known = variables[found["name"]]
    quoted = shlex.quote(known)
    closes = "" if quoted == known else open_quote
    return "$" * kept + closes + quoted + closes
