"""Finds the batch size and the epochs in the containers of a workload, and replaces them by Wattloop's variables.

Kubernetes replaces `$(NAME)` in a command, its arguments and the values of variables, and Wattloop in the program of a
RayJob, so the script stays unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any

from wattloop_operator.api.checks.manifest_problem import Path
from wattloop_operator.api.template_checks import pod_templates, requested_gpus
from wattloop_operator.conversion.setting_names import (
    BATCH_SIZE_SETTING,
    EPOCHS_SETTING,
    FLAG,
    NAME,
    NUMBER,
    ONE_NUMBER,
    PER_DEVICE_SETTING,
    UnreadSetting,
    setting_of,
    unread_settings,
)

# One letter, which other programs have for something else: `git clone -b 2`.
SHORT_BATCH_SIZE = "-b"
# Names that other programs have, too: `dd bs=1024`.
OF_OTHER_PROGRAMS = frozenset({"b", "bs"})
ARGUMENT = re.compile(rf"{NAME}[\"']?(?P<value>{NUMBER})(?![\w.]|,[0-9])")
# "-b32", as argparse takes it. "-e 5" may also be an evaluation.
ATTACHED = re.compile(r"(-[be])([1-9][0-9]{0,8})\Z")
# What may be a setting by another name. A training whose length is in steps has another one with each batch size.
RELATED_BATCH_SIZE = re.compile(r"(?i)batch|^-b\Z")
RELATED_EPOCHS = re.compile(
    r"(?i)epoch|^-e\Z|(?:^|[_./-])(?:max|num|n|total|train|training)[_-]?(?:steps?|iters?|iterations?|updates?)\Z"
)
# Where a command ends in a shell's command line.
COMMAND_END = re.compile(r"[;&|\n]")
TRAINING_PROGRAM = re.compile(r"python|\.py\b|train|torchrun|accelerate|deepspeed", re.IGNORECASE)
MAX_RELATED = 4
MAX_COMMAND_CHARACTERS = 2048
CONTAINERS, INIT_CONTAINERS = "containers", "initContainers"
MAX_DEPTH = 40


@dataclass
class ArgumentValue:
    """A number that the training gets.

    Attributes:
        variable: Wattloop's variable in its place.
        values: The numbers found.
        places: Containers, and names of the arguments or variables with them.
        related: Arguments and variables that may have the setting by another name, with their numbers.
        unread: Arguments and variables that have the setting, but no number.
    """

    variable: str
    values: set[int] = field(default_factory=set)
    places: set[tuple[str, str]] = field(default_factory=set)
    related: list[str] = field(default_factory=list)
    unread: list[UnreadSetting] = field(default_factory=list)

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
        aliases: Names of variables from which an argument has a setting, with it; None: from which it has several.
        short: Containers whose `-b` has the batch size, because no longer name in them has it.
    """

    batch_size: ArgumentValue = field(default_factory=lambda: ArgumentValue("WATTLOOP_BATCH_SIZE"))
    per_device: ArgumentValue = field(default_factory=lambda: ArgumentValue("WATTLOOP_PER_DEVICE_BATCH_SIZE"))
    epochs: ArgumentValue = field(default_factory=lambda: ArgumentValue("WATTLOOP_MAX_EPOCHS"))
    aliases: dict[str, str | None] = field(default_factory=dict)
    short: set[str] = field(default_factory=set)

    @property
    def is_any(self) -> bool:
        """Whether a number of any setting was found."""
        return any(each.values for each in (self.batch_size, self.per_device, self.epochs))

    def setting_of(self, container: str, name: str) -> ArgumentValue | None:
        """The setting that an argument or a variable of this name has in a container, or None."""
        if name == SHORT_BATCH_SIZE:
            return self.batch_size if container in self.short else None
        setting = self.aliases[name] if name in self.aliases else setting_of(name)
        return None if setting is None else self.by_name[setting]

    @property
    def by_name(self) -> dict[str, ArgumentValue]:
        """The settings by their names."""
        return {BATCH_SIZE_SETTING: self.batch_size, PER_DEVICE_SETTING: self.per_device, EPOCHS_SETTING: self.epochs}


def find_arguments(spec: dict[str, Any], names: Collection[str] | None = None) -> TrainingArguments:
    """The batch size and the epochs in the containers of a spec, which is not changed.

    Args:
        spec: The spec.
        names: The containers that count; None: all of them.

    Example:
        >>> pod = {"containers": [{"args": ["--batch-size", "64", "--epochs=10"]}]}
        >>> found = find_arguments({"template": {"spec": pod}})
        >>> found.batch_size.value, found.epochs.value
        (64, 10)
    """
    found = TrainingArguments()
    program = spec.get("entrypoint")
    for each in chain.from_iterable(map(unread_settings, ({"command": [program]}, *_training_containers(spec, names)))):
        found.by_name[each.setting].unread.append(each)
        if each.variable:
            is_other = found.aliases.setdefault(each.variable, each.setting) != each.setting
            found.aliases[each.variable] = None if is_other else each.setting
    of_short: list[tuple[str, str]] = []

    def note(container: str, name: str, value: str) -> str:
        if name == SHORT_BATCH_SIZE:
            of_short.append((container, value))
        else:
            _note(found, container, name, value)
        return value

    _replace_values(spec, names, note)
    has_longer = {container for each in (found.batch_size, found.per_device) for container, _ in each.places}
    found.short = {container for container, _ in of_short} - has_longer
    for container, value in of_short:
        _note(found, container, SHORT_BATCH_SIZE, value)
    return found


def _note(found: TrainingArguments, container: str, name: str, value: str) -> None:
    setting = found.setting_of(container, name)
    if setting is not None:
        setting.values.add(int(value.partition(".")[0]))
        setting.places.add((container, name))
        return
    for form, related in ((RELATED_BATCH_SIZE, found.batch_size.related), (RELATED_EPOCHS, found.epochs.related)):
        if form.search(name) is not None and len(related) < MAX_RELATED:
            related.append(f"{name} {value}")


def replace_arguments(spec: dict[str, Any], found: TrainingArguments, names: Collection[str] | None = None) -> None:
    """Replace each number that was found, and is the only one of its setting, by Wattloop's variable.

    Args:
        spec: The spec, which is changed.
        found: What `find_arguments` has found in it.
        names: The containers that count; None: all of them.
    """

    def replace(container: str, name: str, value: str) -> str:
        setting = found.setting_of(container, name)
        return value if setting is None or setting.value is None else f"$({setting.variable})"

    _replace_values(spec, names, replace)


def _training_containers(spec: dict[str, Any], names: Collection[str] | None) -> Iterator[dict[str, Any]]:
    # Init containers do not get Wattloop's variables.
    for container in containers_in(spec, (CONTAINERS,)):
        if names is None or container.get("name") in names:
            yield container


def _replace_values(
    spec: dict[str, Any], names: Collection[str] | None, replace_in: Callable[[str, str, str], str]
) -> None:
    """Put the result of a function in place of the number of each argument and variable.

    The function gets the container, the name and the number.
    """
    program = spec.get("entrypoint")
    if isinstance(program, str):
        (spec["entrypoint"],) = _words([program], partial(replace_in, "entrypoint"))
    for container in _training_containers(spec, names):
        replace = partial(replace_in, str(container.get("name")))
        for key in ("command", "args"):
            words = container.get(key)
            if isinstance(words, list) and all(isinstance(word, str) for word in words):
                container[key] = list(_words(words, replace))
        variables = container.get("env")
        for each in variables if isinstance(variables, list) else ():
            value = each.get("value") if isinstance(each, dict) else None
            if isinstance(value, str) and ONE_NUMBER.match(value):
                each["value"] = replace(str(each.get("name")), value)
            elif isinstance(value, str):
                # Arguments, such as those of TRAIN_ARGS. Wattloop's variables come before it, as a reference needs.
                (each["value"],) = _words([value], replace)


def _words(words: list[str], replace: Callable[[str, str], str]) -> Iterator[str]:
    def replaced(match: re.Match[str]) -> str:
        is_other = match["name"].lstrip("-") in OF_OTHER_PROGRAMS and not _is_of_training(match)
        value = match["value"] if is_other else replace(match["name"], match["value"])
        return match[0].removesuffix(match["value"]) + value

    before = ""
    for word in words:
        attached = ATTACHED.match(word)
        if attached is not None:
            yield attached[1] + replace(attached[1], attached[2])
        elif FLAG.match(before) is not None and ONE_NUMBER.match(word):
            yield replace(before, word)
        else:
            yield ARGUMENT.sub(replaced, word)
        before = word


def _is_of_training(match: re.Match[str]) -> bool:
    """Whether the command with an argument, in a shell's command line, starts a training."""
    before = match.string[max(0, match.start() - MAX_COMMAND_CHARACTERS) : match.start()]
    command = COMMAND_END.split(before)[-1]
    return not command.strip() or TRAINING_PROGRAM.search(command) is not None


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


@dataclass(frozen=True)
class TrainingContainers:
    """The containers that train.

    Attributes:
        names: Their names; None if all containers train, or if it is not known which do.
        path: The pod's containers in the workload, if it has others beside them.
        others: Names of the containers beside them, or of all if it is not known which of them trains.
    """

    names: tuple[str, ...] | None = None
    path: Path = ()
    others: tuple[str, ...] = ()


def training_containers(spec: dict[str, Any]) -> TrainingContainers:
    """The containers of a workload's spec that train.

    Example:
        >>> containers = [{"name": "monitor"}, {"name": "train", "args": ["--batch-size=64"]}]
        >>> training_containers({"template": {"spec": {"containers": containers}}}).names
        ('train',)
    """
    names: list[str] = []
    found, is_known = TrainingContainers(), True
    for path, pod in pod_templates(spec):
        listed = pod["spec"]["containers"]
        containers = [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
        training = _training(containers)
        others = tuple(str(each.get("name")) for each in containers if each not in training)
        if others:
            is_known = is_known and bool(training)
            found = TrainingContainers(None, (*path, "spec", "containers"), others)
        names += [str(each.get("name")) for each in training]
    return (
        TrainingContainers(tuple(dict.fromkeys(names)), found.path, found.others) if found.path and is_known else found
    )


def _training(containers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    if len(containers) < 2:
        return containers
    with_gpus = [each for each in containers if requested_gpus(each.get("resources"))]
    with_settings = [each for each in with_gpus or containers if find_arguments({"containers": [each]}).is_any]
    return with_settings or with_gpus
