"""Finds the batch size and the epochs in the containers of a workload, and replaces them by Wattloop's variables.

Kubernetes replaces `$(NAME)` in a command, its arguments and the values of variables, and Wattloop in the program of a
RayJob, so the script stays unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

# Names of arguments and variables, in lower case and with underscores.
GLOBAL_BATCH_SIZE = frozenset(
    {"batch_size", "batchsize", "train_batch_size", "training_batch_size", "global_batch_size"}
)
PER_DEVICE_BATCH_SIZE = frozenset({"per_device_train_batch_size", "per_device_batch_size", "batch_size_per_device"})
EPOCHS = frozenset({"epochs", "num_epochs", "max_epochs", "n_epochs", "num_train_epochs"})
# `--name 64`, `--name=64` or, as for Hydra, `training.name=64`, alone or inside a shell's command line.
ARGUMENT = re.compile(
    r"(?<![\w.-])(?P<name>--?[A-Za-z][\w-]*(?=[= ])|[A-Za-z][\w.]*(?==))(?:=| +)(?P<value>[1-9][0-9]{0,8})(?![\w.])"
)
NUMBER = re.compile(r"^[1-9][0-9]{0,8}$")
FLAG = re.compile(r"^--?([A-Za-z][\w-]*)$")
CONTAINERS, INIT_CONTAINERS = "containers", "initContainers"
MAX_DEPTH = 40


@dataclass
class ArgumentValue:
    """A number that the training gets.

    Attributes:
        variable: Wattloop's variable in its place.
        values: The numbers found.
        places: Names of the arguments or variables with them.
    """

    variable: str
    values: set[int] = field(default_factory=set)
    places: set[str] = field(default_factory=set)

    @property
    def value(self) -> int | None:
        """The number, if one was found and no other."""
        return next(iter(self.values)) if len(self.values) == 1 else None


@dataclass
class TrainingArguments:
    """What the containers of a workload say about the decision.

    Attributes:
        batch_size: The batch size of all devices.
        per_device: The batch size of one device.
        epochs: The number of epochs.
    """

    batch_size: ArgumentValue = field(default_factory=lambda: ArgumentValue("WATTLOOP_BATCH_SIZE"))
    per_device: ArgumentValue = field(default_factory=lambda: ArgumentValue("WATTLOOP_PER_DEVICE_BATCH_SIZE"))
    epochs: ArgumentValue = field(default_factory=lambda: ArgumentValue("WATTLOOP_MAX_EPOCHS"))

    def setting_of(self, name: str) -> ArgumentValue | None:
        """The setting that an argument or a variable of this name has, or None."""
        plain = name.lstrip("-").rpartition(".")[2].replace("-", "_").lower()
        named = ((GLOBAL_BATCH_SIZE, self.batch_size), (PER_DEVICE_BATCH_SIZE, self.per_device), (EPOCHS, self.epochs))
        return next((setting for names, setting in named if plain in names), None)


def find_arguments(spec: dict[str, Any]) -> TrainingArguments:
    """The batch size and the epochs in the containers of a spec, which is not changed.

    Example:
        >>> pod = {"containers": [{"args": ["--batch-size", "64", "--epochs=10"]}]}
        >>> found = find_arguments({"template": {"spec": pod}})
        >>> found.batch_size.value, found.epochs.value
        (64, 10)
    """
    found = TrainingArguments()

    def note(name: str, value: str) -> str:
        setting = found.setting_of(name)
        if setting is not None:
            setting.values.add(int(value))
            setting.places.add(name)
        return value

    _replace_values(spec, note)
    return found


def replace_arguments(spec: dict[str, Any], found: TrainingArguments) -> None:
    """Replace each number that was found, and is the only one of its setting, by Wattloop's variable.

    Args:
        spec: The spec, which is changed.
        found: What `find_arguments` has found in it.
    """

    def replace(name: str, value: str) -> str:
        setting = found.setting_of(name)
        return value if setting is None or setting.value is None else f"$({setting.variable})"

    _replace_values(spec, replace)


def _replace_values(spec: dict[str, Any], replace: Callable[[str, str], str]) -> None:
    """Call `replace` with name and number of each argument and variable, and put its result in place of the number."""
    program = spec.get("entrypoint")
    if isinstance(program, str):
        (spec["entrypoint"],) = _words([program], replace)
    # Init containers do not get Wattloop's variables.
    for container in containers_in(spec, (CONTAINERS,)):
        for key in ("command", "args"):
            words = container.get(key)
            if isinstance(words, list) and all(isinstance(word, str) for word in words):
                container[key] = list(_words(words, replace))
        variables = container.get("env")
        for each in variables if isinstance(variables, list) else ():
            value = each.get("value") if isinstance(each, dict) else None
            if isinstance(value, str) and NUMBER.match(value):
                each["value"] = replace(str(each.get("name")), value)


def _words(words: list[str], replace: Callable[[str, str], str]) -> Iterator[str]:
    def replaced(match: re.Match[str]) -> str:
        return match[0].removesuffix(match["value"]) + replace(match["name"], match["value"])

    before = ""
    for word in words:
        flag = FLAG.match(before)
        yield replace(before, word) if flag is not None and NUMBER.match(word) else ARGUMENT.sub(replaced, word)
        before = word


def containers_in(
    value: object, fields: tuple[str, ...] = (CONTAINERS, INIT_CONTAINERS), depth: int = 0
) -> Iterator[dict[str, Any]]:
    """The containers of all pod templates in a value: those in these fields."""
    if depth > MAX_DEPTH:
        return
    if isinstance(value, list):
        for item in value:
            yield from containers_in(item, fields, depth + 1)
    elif isinstance(value, dict):
        for name, item in value.items():
            if name in fields and isinstance(item, list):
                yield from (each for each in item if isinstance(each, dict))
            else:
                yield from containers_in(item, fields, depth + 1)
