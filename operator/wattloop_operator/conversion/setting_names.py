"""The names that a training has for the batch size and for the epochs, and why one of them has no number."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

# Names of arguments and variables, in lower case and with underscores.
GLOBAL_BATCH_SIZE = frozenset({
    "batch", "batch_sz", "batch_size", "batchsize", "bs", "bsz", "data_batch_size", "global_batch",
    "global_batch_size", "ims_per_batch", "mini_batch_size", "minibatch_size", "total_batch_size", "train_batch",
    "train_batch_size", "train_batchsize", "train_bs", "training_batch_size",
})  # fmt: skip
PER_DEVICE_BATCH_SIZE = frozenset({
    "batch_size_per_device", "batch_size_per_gpu", "device_batch_size", "imgs_per_gpu", "local_batch_size",
    "per_device_batch_size", "per_device_train_batch_size", "per_gpu_batch_size", "per_gpu_train_batch_size",
    "samples_per_gpu", "train_batch_size_per_gpu",
})  # fmt: skip
EPOCHS = frozenset({
    "epoch", "epoch_num", "epochs", "epochs_num", "max_epoch", "max_epochs", "max_num_epochs", "n_epoch",
    "n_epochs", "nb_epoch", "nb_epochs", "nepochs", "num_epoch", "num_epochs", "num_train_epoch",
    "num_train_epochs", "num_training_epochs", "number_of_epochs", "total_epoch", "total_epochs", "train_epoch",
    "train_epochs", "training_epochs",
})  # fmt: skip
# Parts of a name that say of what it is not.
NOT_TRAINING = re.compile(r"^(?:val|valid|validation|eval|evaluation|test|predict|inference)(?:_|$)", re.IGNORECASE)
BATCH_SIZE_SETTING, PER_DEVICE_SETTING, EPOCHS_SETTING = "batch_size", "per_device", "epochs"


def _plain(name: str) -> str:
    """A name without what differs between ways to write it: batch_size, batch-size, batchSize."""
    return name.replace("-", "").replace("_", "").lower()


SETTINGS = (
    dict.fromkeys(map(_plain, GLOBAL_BATCH_SIZE), BATCH_SIZE_SETTING)
    | dict.fromkeys(map(_plain, PER_DEVICE_BATCH_SIZE), PER_DEVICE_SETTING)
    | dict.fromkeys(map(_plain, EPOCHS), EPOCHS_SETTING)
)


def setting_of(name: str) -> str | None:
    """The setting that an argument or a variable of this name has, or None.

    Example:
        >>> setting_of("--train-batch-size"), setting_of("trainer.max_epochs"), setting_of("val.batch_size")
        ('batch_size', 'epochs', None)
    """
    *outer, last = re.split(r"[./]", name.lstrip("-+"))
    return None if any(map(NOT_TRAINING.match, outer)) else SETTINGS.get(_plain(last))


# `--name 64`, `--name=64`, as for Hydra `training.name=64`, as for Detectron2 `TRAINING.NAME 64`, or in JSON
# `"name": 64`, alone or inside a shell's command line: all before the value.
NAME = (
    r"(?<![\w.-])(?P<name>--?[A-Za-z][\w.-]*(?=[= \t\\])|\+{0,2}[A-Za-z][\w./]*(?==)|[A-Za-z]\w*(?:\.\w+)+(?=[ \t])"
    r"|[A-Za-z]\w*(?=[\"'][ \t]*:))"
    r"(?:=|(?:[ \t]|\\\n)+|[\"'][ \t]*:[ \t]*)"
)
# Scripts may give epochs as 3.0.
NUMBER = r"[1-9][0-9]{0,8}(?:\.0{1,9})?"
ONE_NUMBER = re.compile(rf"{NUMBER}\Z")
FLAG = re.compile(r"(--?[A-Za-z][\w.-]*|[A-Za-z]\w*(?:\.\w+)+)\Z")
# A value, of which the search for the next name takes nothing: it may be a name itself.
_ANY_VALUE = re.compile(
    rf"{NAME}[\"']?(?=(?P<value>\$\([^)\n]{{1,99}}\)+|\{{\{{[^}}\n]{{1,99}}\}}\}}"
    r"|[^\s\"',;|&-][^\s\"';|&]{0,99}))"
)
_ONE_WORD = re.compile(r"[^\s\"'-]\S{0,99}\Z")
# Of Kubernetes `$(NAME)`; of a shell `$NAME`, `${NAME}` and `${NAME:-64}`.
_REFERENCE = re.compile(
    r"\$(?:\((?P<kubernetes>[A-Za-z_]\w*)\)|(?P<shell>[A-Za-z_]\w*)"
    r"|\{(?P<braced>[A-Za-z_]\w*)(?::?[-=](?P<default>[^}]*))?\})\Z"
)
_DEFAULT = r"(?<!\w){name}=[\"']?\${{{name}:?[-=]([^}}]*)}}"
_KEY_REFERENCES = {"configMapKeyRef": "ConfigMap", "secretKeyRef": "Secret"}


@dataclass(frozen=True)
class UnreadSetting:
    """An argument or a variable that has a setting, but no number.

    Attributes:
        name: Name of the argument or variable.
        reason: Why it has no number.
        variable: The variable that it refers to, or that it is; empty if there is none.
    """

    setting: str
    name: str
    reason: str
    variable: str = ""


def unread_settings(container: dict[str, Any]) -> list[UnreadSetting]:
    """The arguments and variables of a container that have a setting, but no number; one for each variable.

    Example:
        >>> for each in unread_settings({"command": ["sh", "-c", "python train.py --bs=1e3 --epochs ${EP:-20}"]}):
        ...     print(each.reason)
        --bs 1e3 is not written as a whole number above 0
        --epochs has it from the shell variable EP (20 where that is not set)
    """
    entries = container.get("env")
    listed = [each for each in entries if isinstance(each, dict)] if isinstance(entries, list) else []
    variables = {str(each.get("name")): each for each in listed}
    words = [word for key in ("command", "args") for word in _strings(container.get(key))]
    texts = [*words, *_strings([each.get("value") for each in listed])]
    values = {name: each.get("value") for name, each in variables.items()}
    of_variables = [(name, text) for name, text in values.items() if isinstance(text, str) and _ONE_WORD.match(text)]
    found: list[UnreadSetting] = []
    for name, value in (*_named_values(words, texts), *of_variables):
        setting = setting_of(name)
        if setting is not None and not ONE_NUMBER.match(value):
            found.append(_unread(setting, name, value, variables, texts))
    for name, variable in variables.items():
        setting, origin = setting_of(name), _origin(variable)
        if setting is not None and origin:
            found.append(UnreadSetting(setting, name, f"the variable {name} is {origin}", name))
    # What the training gets explains more than `BATCH_SIZE=${BATCH_SIZE:-64}` before it.
    found.sort(key=lambda each: each.name == each.variable)
    kept: dict[tuple[str, str], UnreadSetting] = {}
    for each in found:
        kept.setdefault((each.setting, each.variable or each.name), each)
    return list(kept.values())


def _strings(values: object) -> list[str]:
    return [each for each in values if isinstance(each, str)] if isinstance(values, list) else []


def _named_values(words: list[str], texts: list[str]) -> Iterator[tuple[str, str]]:
    for before, word in pairwise(words):
        if FLAG.match(before) and _ONE_WORD.match(word):
            yield before, word
    for text in texts:
        for each in _ANY_VALUE.finditer(text):
            # Without what ends it in JSON.
            value = each["value"].rstrip(",")
            yield each["name"], value if "{" in value else value.rstrip("}]" if "[" not in value else "}")


def _unread(
    setting: str, name: str, value: str, variables: dict[str, dict[str, Any]], texts: list[str]
) -> UnreadSetting:
    reference = _REFERENCE.match(value)
    if reference is None:
        return UnreadSetting(setting, name, f"{name} {value} is not written as a whole number above 0")
    variable = reference["kubernetes"] or reference["shell"] or reference["braced"]
    default, entry = reference["default"], variables.get(variable)
    if entry is None and reference["kubernetes"]:
        # Kubernetes leaves it as it is, and a shell takes it for a command.
        return UnreadSetting(setting, name, f"{name} has it from {value}, which env does not have", variable)
    reason = f"{name} has it from the {'' if reference['kubernetes'] else 'shell '}variable {variable}"
    if entry is not None:
        origin = _origin(entry) or f"{str(entry.get('value', ''))!r}"
        return UnreadSetting(setting, name, f"{reason}, which is {origin}", variable)
    if default is None:
        pattern = re.compile(_DEFAULT.format(name=variable))
        default = next((each[1] for each in map(pattern.search, texts) if each is not None), None)
    also = "" if default is None else f" ({default} where that is not set)"
    return UnreadSetting(setting, name, f"{reason}{also}", variable)


def _origin(variable: dict[str, Any]) -> str:
    """From what object Kubernetes takes the value of a variable; empty if it does not."""
    source = variable.get("valueFrom")
    for field, kind in _KEY_REFERENCES.items():
        reference = source.get(field) if isinstance(source, dict) else None
        if isinstance(reference, dict):
            return f"from key {reference.get('key')} of the {kind} {reference.get('name')}"
    return "from valueFrom" if source else ""
