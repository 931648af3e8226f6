"""The environment variables that Wattloop injects into a training process, which reads them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any

from wattloop.errors import InputError
from wattloop.wire.launcher import (
    FIRST_POD_VARIABLE,
    JOB_INDEX_VARIABLE,
    JOB_PODS_VARIABLE,
    PODS_VARIABLE,
    process_rank,
)

# The whole prefix is reserved, so that variables of later versions break no existing manifest; but for the arguments of
# `wattloop.pipeline`, which Wattloop never sets.
PREFIX = "WATTLOOP_"
PIPELINE_PREFIX = f"{PREFIX}PIPELINE_"
PARAMETER_PREFIX = f"{PREFIX}PARAM_"
# Each container may have a path of its own.
TERMINATION_MESSAGE_VARIABLE = f"{PREFIX}TERMINATION_MESSAGE_PATH"
SELECTORS = ("Energy", "Cost", "MaxSlowdown")
MAX_INTEGER_CHARACTERS = 20


@dataclass(frozen=True)
class RunTarget:
    """The metric value at which a run is done.

    Attributes:
        consecutive_evaluations: Number of consecutive evaluations that must reach the threshold.

    Example:
        >>> RunTarget("loss", 0.1, maximize=False).reached_by(0.05)
        True
    """

    metric: str
    threshold: float
    maximize: bool = True
    consecutive_evaluations: int = 1

    def reached_by(self, value: float) -> bool:
        """Whether one evaluation reaches the threshold."""
        return value >= self.threshold if self.maximize else value <= self.threshold


Reader = Callable[[Mapping[str, str], str, Any], Any]
"""Reads a variable; the last argument is the value without one."""


def _variable(name: str, read: Reader, default: object = None) -> Any:
    """A field that is in an environment variable."""
    return field(default=default, metadata={"variable": (name, read)})


def _formatted(value: object) -> str:
    if isinstance(value, bool):
        return "1" if value else ""
    return "" if value is None else value if isinstance(value, str) else repr(value)


def _text(variables: Mapping[str, str], name: str, default: str) -> str:
    return variables.get(name, default)


def _flag(variables: Mapping[str, str], name: str, _default: bool) -> bool:
    return variables.get(name, "") == "1"


def _number(variables: Mapping[str, str], name: str, default: float | None) -> float | None:
    text = variables.get(name, "")
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InputError("the environment", _quoted(text), f"a finite number in {name}")
    return value


def _integer(variables: Mapping[str, str], name: str, default: int | None = None, *, minimum: int = 1) -> int | None:
    text = variables.get(name, "")
    if not text:
        return default
    digits = text.isascii() and text.isdecimal() and len(text) <= MAX_INTEGER_CHARACTERS
    if not digits or not minimum <= int(text) < 2**64:
        raise InputError("the environment", _quoted(text), f"a whole number from {minimum} to 2^64-1 in {name}")
    return int(text)


def _choice(variables: Mapping[str, str], name: str, default: str, choices: tuple[str, ...]) -> str:
    text = variables.get(name) or default
    if text not in choices:
        raise InputError("the environment", _quoted(text), f"one of {', '.join(choices)} in {name}")
    return text


def _quoted(text: str) -> str:
    return repr(text[:80])


@dataclass(frozen=True)
class RunEnvironment:
    """The settings of a training process.

    Attributes:
        job: namespace/name of the RecurringTrainingJob; empty outside Wattloop.
        batch_size: The global batch size; None outside Wattloop.
        per_device_batch_size: The batch size of one GPU; None outside Wattloop.
        learning_rate_scale: Factor for the script's learning rate at this batch size.
        power_limit_watts: The limit to hold on each GPU; None to leave GPUs unchanged.
        profile_power_limits: Whether to measure the power limits first and then hold the best one.
        eta: Weight of energy in the cost, from 0 to 1.
        seed: Seed of the training's random numbers, different for each attempt; None outside Wattloop.
        advise: Whether the job is in mode Advise, so that the run keeps its configuration.
        progress_deadline_seconds: Seconds of silence after which the operator ends the attempt as hung; None: never.
        output_directory: Folder or URL for the files of this attempt; empty for none.
        warm_start_directory: Link or marker of the model to begin with; empty to begin without one.
        current_model: Link or marker of the published model; empty for none.
        report_url: Destination of reports; empty to send none.
        termination_message_path: The container's file for its termination message, in which reports are left that were
            not delivered; empty for none.
        agent_socket: The node agent's socket; empty for none.
        rank: Rank of this process in a distributed run, from its launcher; only the metric of rank 0
            counts.
    """

    job: str = _variable("WATTLOOP_JOB", _text, "")
    recurrence: str = _variable("WATTLOOP_RECURRENCE", _text, "")
    batch_size: int | None = _variable("WATTLOOP_BATCH_SIZE", _integer)
    per_device_batch_size: int | None = _variable("WATTLOOP_PER_DEVICE_BATCH_SIZE", _integer)
    learning_rate_scale: float = _variable("WATTLOOP_LEARNING_RATE_SCALE", _number, 1.0)
    max_epochs: int | None = _variable("WATTLOOP_MAX_EPOCHS", _integer)
    target: RunTarget | None = None
    power_limit_watts: float | None = _variable("WATTLOOP_POWER_LIMIT_WATTS", _number)
    profile_power_limits: bool = _variable("WATTLOOP_PROFILE_POWER_LIMITS", _flag, False)
    power_selector: str = _variable("WATTLOOP_POWER_SELECTOR", partial(_choice, choices=SELECTORS), "Cost")
    max_slowdown_percent: float = _variable("WATTLOOP_MAX_SLOWDOWN_PERCENT", _number, 10.0)
    eta: float = _variable("WATTLOOP_ETA", _number, 0.5)
    seed: int | None = _variable("WATTLOOP_SEED", partial(_integer, minimum=0))
    parameters: Mapping[str, str] = field(default_factory=dict)
    advise: bool = _variable("WATTLOOP_ADVISE", _flag, False)
    progress_deadline_seconds: float | None = _variable("WATTLOOP_PROGRESS_DEADLINE_SECONDS", _number)
    output_directory: str = _variable("WATTLOOP_OUTPUT_DIR", _text, "")
    warm_start_directory: str = _variable("WATTLOOP_WARM_START_DIR", _text, "")
    current_model: str = _variable("WATTLOOP_CURRENT_MODEL", _text, "")
    report_url: str = _variable("WATTLOOP_REPORT_URL", _text, "")
    token_file: str = _variable("WATTLOOP_TOKEN_FILE", _text, "")
    certificate_authority_file: str = _variable("WATTLOOP_CA_FILE", _text, "")
    termination_message_path: str = _variable(TERMINATION_MESSAGE_VARIABLE, _text, "")
    agent_socket: str = _variable("WATTLOOP_AGENT_SOCKET", _text, "")
    pods: int = 1
    rank: int = 0
    ranks: int = 1

    @property
    def managed(self) -> bool:
        """Whether Wattloop started this process."""
        return bool(self.job)

    def variables(self) -> dict[str, str]:
        """These settings as environment variables; empty values are omitted."""
        named = {name: _formatted(getattr(self, each)) for each, (name, _) in _variables().items()}
        named[PODS_VARIABLE] = str(self.pods) if self.pods > 1 else ""
        if self.target is not None:
            named["WATTLOOP_TARGET_METRIC"] = self.target.metric
            named["WATTLOOP_TARGET_THRESHOLD"] = _formatted(self.target.threshold)
            named["WATTLOOP_TARGET_DIRECTION"] = "Maximize" if self.target.maximize else "Minimize"
            named["WATTLOOP_TARGET_CONSECUTIVE_EVALUATIONS"] = str(self.target.consecutive_evaluations)
        parameters = {f"{PARAMETER_PREFIX}{name}": value for name, value in self.parameters.items()}
        return {name: value for name, value in named.items() if value} | parameters

    @staticmethod
    def read(variables: Mapping[str, str]) -> RunEnvironment:
        """Read the variables of a process. Without ``WATTLOOP_JOB`` the process runs outside Wattloop.

        Raises:
            InputError: A variable has an invalid value.

        Example:
            >>> RunEnvironment.read({}).managed
            False
        """
        # Outside Wattloop nothing depends on other processes.
        place = process_rank(variables if variables.get("WATTLOOP_JOB") else {})
        defaults = RunEnvironment()
        return RunEnvironment(
            **{each: read(variables, name, getattr(defaults, each)) for each, (name, read) in _variables().items()},
            target=_target(variables),
            parameters={
                name.removeprefix(PARAMETER_PREFIX): value
                for name, value in variables.items()
                if name.startswith(PARAMETER_PREFIX)
            },
            pods=_integer(variables, PODS_VARIABLE) or 1,
            rank=place.rank,
            ranks=place.ranks,
        )


def variable_names() -> frozenset[str]:
    """The variables that Wattloop may set in a training, apart from those of parameters.

    Example:
        >>> "WATTLOOP_BATCH_SIZE" in variable_names(), "WATTLOOP_BATCHSIZE" in variable_names()
        (True, False)
    """
    with_target = RunEnvironment(target=RunTarget("metric", 1.0)).variables()
    others = (PODS_VARIABLE, FIRST_POD_VARIABLE, JOB_INDEX_VARIABLE, JOB_PODS_VARIABLE)
    return frozenset((*(name for name, _ in _variables().values()), *with_target, *others))


def _variables() -> dict[str, tuple[str, Reader]]:
    """By field, its variable and what reads it."""
    return {each.name: each.metadata["variable"] for each in fields(RunEnvironment) if each.metadata}


def _target(variables: Mapping[str, str]) -> RunTarget | None:
    metric = variables.get("WATTLOOP_TARGET_METRIC", "")
    threshold = _number(variables, "WATTLOOP_TARGET_THRESHOLD", None)
    if not metric or threshold is None:
        return None
    return RunTarget(
        metric,
        threshold,
        maximize=_choice(variables, "WATTLOOP_TARGET_DIRECTION", "Maximize", ("Maximize", "Minimize")) == "Maximize",
        consecutive_evaluations=_integer(variables, "WATTLOOP_TARGET_CONSECUTIVE_EVALUATIONS") or 1,
    )
