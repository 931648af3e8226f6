"""The command of an attempt on this machine, from the container of the job template, and the Python that runs it."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wattloop.errors import InputError
from wattloop.installation import how_to_install
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.api.template_checks import training_containers

REFERENCE = re.compile(r"\$(\$|\(([A-Za-z_][A-Za-z0-9_.-]*)\))")


@dataclass(frozen=True)
class LocalCommand:
    """A command to start.

    Attributes:
        arguments: The program and its arguments.
        environment: The container's own variables.
    """

    arguments: tuple[str, ...]
    environment: Mapping[str, str]


def command_of(job: RecurringTrainingJob, injected: Mapping[str, str], source: str) -> LocalCommand:
    """The command of the training container, with ``$(NAME)`` expanded as Kubernetes does.

    Args:
        job: The job.
        injected: Wattloop's variables, which the command and the user's own variables may refer to.
        source: The manifest, for messages.

    Raises:
        InputError: The template is not a job, or its container has no command that could be started
            without an image, or one with a text that no process can get.
    """
    template = job.spec.template
    if not template.is_job:
        raise InputError(source, f"spec.template.kind {template.kind}", "a Job, which can run as a process")
    containers = template.spec.value["template"]["spec"]["containers"]
    container = training_containers(containers, job.spec.training_containers)[0]
    arguments = [*container.get("command", ()), *container.get("args", ())]
    if not container.get("command"):
        found = f"container {container['name']!r} without command"
        raise InputError(source, found, "a command: on this machine there is no image to take one from")
    environment = _own_environment(container, injected, source)
    _check_texts(job, container, arguments, source)
    known = {**injected, **environment}
    return LocalCommand(tuple(expanded(each, known) for each in arguments), environment)


def _check_texts(
    job: RecurringTrainingJob, container: Mapping[str, Any], arguments: Sequence[str], source: str
) -> None:
    """Check that a process can get the texts: the kernel ends each with a NUL, and a variable's name with an =."""
    variables = container.get("env", ())
    for name in (entry["name"] for entry in variables):
        if not name or set(name) & {"=", "\0"}:
            found = f"a variable with the name {name!r} in container {container['name']!r}"
            raise InputError(source, found, "a name without = and NUL, such as DATA_FOLDER")
    texts = {f"the value of {entry['name']}": entry["value"] for entry in variables}
    texts |= {f"argument {index} of its command": text for index, text in enumerate(arguments)}
    for parameter in job.spec.parameters:
        texts |= {f"the candidate {text!r} of spec.parameters {parameter.name}": text for text in parameter.candidates}
    for where, text in texts.items():
        if "\0" in text:
            raise InputError(source, f"a NUL character in {where}", "a text without one")


def _own_environment(container: Mapping[str, Any], injected: Mapping[str, str], source: str) -> dict[str, str]:
    environment: dict[str, str] = {}
    for entry in container.get("env", ()):
        if "value" not in entry:
            found = f"variable {entry['name']} of container {container['name']!r} from another object"
            raise InputError(source, found, "a plain value: on this machine there are no secrets and no config maps")
        environment[entry["name"]] = expanded(entry["value"], {**injected, **environment})
    return environment


def expanded(text: str, variables: Mapping[str, str]) -> str:
    """Expand ``$(NAME)``; an unknown name is left unchanged, and ``$$`` gives a dollar.

    Example:
        >>> expanded("--batch=$(B) $$(B) $(C)", {"B": "32"})
        '--batch=32 $(B) $(C)'
    """
    return REFERENCE.sub(lambda match: "$" if match[1] == "$" else variables.get(match[2], match[0]), text)


CLIENT = "wattloop"
_MISSING = re.compile(r"^(?:\[\w+\]: ?)?ModuleNotFoundError: No module named '(\w{1,80})[\w.]{0,200}'", re.MULTILINE)


def python_of(program: str, environment: Mapping[str, str]) -> str:
    """The Python that a program runs with: itself, or for another program the first of the PATH; empty for none.

    Args:
        program: The first word of the command.
        environment: Of the process.
    """
    named = program if Path(program).name.startswith("python") else "python"
    return shutil.which(named, path=environment.get("PATH", "")) or ""


def missing_module_text(output: str, python: str) -> str:
    r"""Which Python lacks the module that an output names as missing; empty if it names none.

    Args:
        output: The end of a script's output.
        python: The Python that it ran with.

    Example:
        >>> missing_module_text("ModuleNotFoundError: No module named 'torch'", "/opt/env/bin/python")
        '/opt/env/bin/python has no module torch; for another Python, begin the command of spec.template with its path'
    """
    found = _MISSING.findall(output)
    if not found or not python:
        return ""
    if found[-1] == CLIENT:
        return f"{python} has no Wattloop client; {how_to_install(python=python)}"
    is_own = Path(python).parent == Path(sys.executable).parent
    whose = " (Wattloop's own Python)" if is_own else ""
    other = "for another Python, begin the command of spec.template with its path"
    return f"{python}{whose} has no module {found[-1]}; {other}"
