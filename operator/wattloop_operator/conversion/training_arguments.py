"""Finds the batch size and the epochs in the containers of a workload, and replaces them by Wattloop's variables.

Kubernetes replaces `$(NAME)` in a command, its arguments and the values of variables, and Wattloop in the program of a
RayJob, so the script stays unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

# Names of arguments and variables, in lower case and with underscores.
GLOBAL_BATCH_SIZE = frozenset(
    {
        "batch",
        "batch_sz",
        "batch_size",
        "batchsize",
        "bs",
        "bsz",
        "data_batch_size",
        "global_batch",
        "global_batch_size",
        "ims_per_batch",
        "mini_batch_size",
        "minibatch_size",
        "total_batch_size",
        "train_batch",
        "train_batch_size",
        "train_batchsize",
        "train_bs",
        "training_batch_size",
    }
)
PER_DEVICE_BATCH_SIZE = frozenset(
    {
        "batch_size_per_device",
        "batch_size_per_gpu",
        "device_batch_size",
        "imgs_per_gpu",
        "local_batch_size",
        "per_device_batch_size",
        "per_device_train_batch_size",
        "per_gpu_batch_size",
        "per_gpu_train_batch_size",
        "samples_per_gpu",
        "train_batch_size_per_gpu",
    }
)
EPOCHS = frozenset(
    {
        "epoch",
        "epoch_num",
        "epochs",
        "epochs_num",
        "max_epoch",
        "max_epochs",
        "max_num_epochs",
        "n_epoch",
        "n_epochs",
        "nb_epoch",
        "nb_epochs",
        "nepochs",
        "num_epoch",
        "num_epochs",
        "num_train_epoch",
        "num_train_epochs",
        "num_training_epochs",
        "number_of_epochs",
        "total_epoch",
        "total_epochs",
        "train_epoch",
        "train_epochs",
        "training_epochs",
    }
)
# One letter, which other programs have for something else: `git clone -b 2`.
SHORT_BATCH_SIZE = "-b"
# Names that other programs have, too: `dd bs=1024`.
OF_OTHER_PROGRAMS = frozenset({"b", "bs"})
# Parts of a name that say of what it is not.
NOT_TRAINING = re.compile(r"^(?:val|valid|validation|eval|evaluation|test|predict|inference)(?:_|$)", re.IGNORECASE)
# `--name 64`, `--name=64`, as for Hydra `training.name=64`, as for Detectron2 `TRAINING.NAME 64`, or in JSON
# `"name": 64`, alone or inside a shell's command line.
ARGUMENT = re.compile(
    r"(?<![\w.-])(?P<name>--?[A-Za-z][\w.-]*(?=[= \t\\])|\+{0,2}[A-Za-z][\w./]*(?==)|[A-Za-z]\w*(?:\.\w+)+(?=[ \t])"
    r"|[A-Za-z]\w*(?=[\"'][ \t]*:))"
    r"(?:=|(?:[ \t]|\\\n)+|[\"'][ \t]*:[ \t]*)[\"']?(?P<value>[1-9][0-9]{0,8})(?![\w.])"
)
NUMBER = re.compile(r"^[1-9][0-9]{0,8}$")
FLAG = re.compile(r"^(--?[A-Za-z][\w.-]*|[A-Za-z]\w*(?:\.\w+)+)$")
# Where a command ends in a shell's command line.
COMMAND_END = re.compile(r"[;&|\n]")
TRAINING_PROGRAM = re.compile(r"python|\.py\b|train|torchrun|accelerate|deepspeed", re.IGNORECASE)
# What an argument's name may have to do with a setting that it does not have.
RELATED = re.compile(r"batch|epoch", re.IGNORECASE)
MAX_RELATED = 4
MAX_COMMAND_CHARACTERS = 2048
CONTAINERS, INIT_CONTAINERS = "containers", "initContainers"
MAX_DEPTH = 40


def _plain(name: str) -> str:
    """A name without what differs between ways to write it: batch_size, batch-size, batchSize."""
    return name.replace("-", "").replace("_", "").lower()


SETTINGS = (
    dict.fromkeys(map(_plain, GLOBAL_BATCH_SIZE), "batch_size")
    | dict.fromkeys(map(_plain, PER_DEVICE_BATCH_SIZE), "per_device")
    | dict.fromkeys(map(_plain, EPOCHS), "epochs")
)


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
        related: Arguments and variables that may have a setting by another name, with their numbers.
        has_short: Whether `-b` has the batch size, because no longer name has it.
    """

    batch_size: ArgumentValue = field(default_factory=lambda: ArgumentValue("WATTLOOP_BATCH_SIZE"))
    per_device: ArgumentValue = field(default_factory=lambda: ArgumentValue("WATTLOOP_PER_DEVICE_BATCH_SIZE"))
    epochs: ArgumentValue = field(default_factory=lambda: ArgumentValue("WATTLOOP_MAX_EPOCHS"))
    related: list[str] = field(default_factory=list)
    has_short: bool = False

    @property
    def is_any(self) -> bool:
        """Whether a number of any setting was found."""
        return any(each.values for each in (self.batch_size, self.per_device, self.epochs))

    def setting_of(self, name: str) -> ArgumentValue | None:
        """The setting that an argument or a variable of this name has, or None."""
        if name == SHORT_BATCH_SIZE:
            return self.batch_size if self.has_short else None
        *outer, last = re.split(r"[./]", name.lstrip("-+"))
        if any(map(NOT_TRAINING.match, outer)):
            return None
        setting = SETTINGS.get(_plain(last))
        return {"batch_size": self.batch_size, "per_device": self.per_device, "epochs": self.epochs}.get(setting or "")


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
    _replace_values(spec, names, lambda name, value: _note(found, name, value))
    if not found.batch_size.values and not found.per_device.values:
        found.has_short = True
        _replace_values(
            spec, names, lambda name, value: _note(found, name, value) if name == SHORT_BATCH_SIZE else value
        )
        found.has_short = bool(found.batch_size.values)
    return found


def _note(found: TrainingArguments, name: str, value: str) -> str:
    setting = found.setting_of(name)
    if setting is not None:
        setting.values.add(int(value))
        setting.places.add(name)
    elif RELATED.search(name) and len(found.related) < MAX_RELATED:
        found.related.append(f"{name} {value}")
    return value


def replace_arguments(spec: dict[str, Any], found: TrainingArguments, names: Collection[str] | None = None) -> None:
    """Replace each number that was found, and is the only one of its setting, by Wattloop's variable.

    Args:
        spec: The spec, which is changed.
        found: What `find_arguments` has found in it.
        names: The containers that count; None: all of them.
    """

    def replace(name: str, value: str) -> str:
        setting = found.setting_of(name)
        return value if setting is None or setting.value is None else f"$({setting.variable})"

    _replace_values(spec, names, replace)


def _replace_values(spec: dict[str, Any], names: Collection[str] | None, replace: Callable[[str, str], str]) -> None:
    """Call `replace` with name and number of each argument and variable, and put its result in place of the number."""
    program = spec.get("entrypoint")
    if isinstance(program, str):
        (spec["entrypoint"],) = _words([program], replace)
    # Init containers do not get Wattloop's variables.
    for container in containers_in(spec, (CONTAINERS,)):
        if names is not None and container.get("name") not in names:
            continue
        for key in ("command", "args"):
            words = container.get(key)
            if isinstance(words, list) and all(isinstance(word, str) for word in words):
                container[key] = list(_words(words, replace))
        variables = container.get("env")
        for each in variables if isinstance(variables, list) else ():
            value = each.get("value") if isinstance(each, dict) else None
            if isinstance(value, str) and NUMBER.match(value):
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
        flag = FLAG.match(before)
        yield replace(before, word) if flag is not None and NUMBER.match(word) else ARGUMENT.sub(replaced, word)
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
