"""The variables that Wattloop injects into a training process, written and read in one place.

The operator and the local mode write them with `RunEnvironment.variables`, the training process reads them with
`RunEnvironment.read`; so both sides agree by construction.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import overload

from wattloop.errors import InputError

# Reserved as a whole, so that a variable that Wattloop sets in a later version breaks no manifest of today.
PREFIX = "WATTLOOP_"
PARAMETER_PREFIX = f"{PREFIX}PARAM_"
SELECTORS = ("Energy", "Time", "Cost", "MaxSlowdown")
MAX_WHOLE_CHARACTERS = 20
RANK_VARIABLES = ("RANK", "JOB_COMPLETION_INDEX")


@dataclass(frozen=True)
class RunTarget:
    """What a run has to reach.

    Attributes:
        metric: Its name.
        threshold: The value to reach.
        maximize: Whether higher is better.
        consecutive_evaluations: How many evaluations in a row must reach it.

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


@dataclass(frozen=True)
class RunEnvironment:
    """What a training process is told.

    Attributes:
        job: namespace/name of the RecurringTrainingJob; empty when run outside Wattloop.
        recurrence: Name of the TrainingRecurrence.
        batch_size: The global batch size to train with; None when run outside Wattloop.
        per_device_batch_size: The batch size of one GPU; None when run outside Wattloop.
        learning_rate_scale: Factor on the script's learning rate for this batch size.
        max_epochs: Epochs after which to give up; None when run outside Wattloop.
        target: What to reach; None when run outside Wattloop.
        power_limit_watts: The limit to hold on each GPU; None to leave GPUs as they are.
        profile_power_limits: Whether to measure the power limits first and then hold the best.
        power_selector: How the best limit is chosen: Energy, Time, Cost or MaxSlowdown.
        max_slowdown_percent: For MaxSlowdown.
        eta: Weight of energy against time in the cost.
        seed: A number for the training's own random draws, another one for each attempt; None outside Wattloop.
        parameters: Further knobs by name.
        report_url: Where reports go; empty for nowhere.
        token_file: File with the token that reports carry.
        certificate_authority_file: Certificates that the report URL is checked against.
        agent_socket: The node agent's socket; empty for none.
        rank: Which process of a distributed run this is, as its launcher says it; the metric of rank 0 counts.
    """

    job: str = ""
    recurrence: str = ""
    batch_size: int | None = None
    per_device_batch_size: int | None = None
    learning_rate_scale: float = 1.0
    max_epochs: int | None = None
    target: RunTarget | None = None
    power_limit_watts: float | None = None
    profile_power_limits: bool = False
    power_selector: str = "Cost"
    max_slowdown_percent: float = 10.0
    eta: float = 0.5
    seed: int | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    report_url: str = ""
    token_file: str = ""
    certificate_authority_file: str = ""
    agent_socket: str = ""
    rank: int = 0

    @property
    def managed(self) -> bool:
        """Whether Wattloop started this process."""
        return bool(self.job)

    def variables(self) -> dict[str, str]:
        """The environment variables that say this; empty values are left out."""
        named = {
            "WATTLOOP_JOB": self.job,
            "WATTLOOP_RECURRENCE": self.recurrence,
            "WATTLOOP_BATCH_SIZE": _shown(self.batch_size),
            "WATTLOOP_PER_DEVICE_BATCH_SIZE": _shown(self.per_device_batch_size),
            "WATTLOOP_LEARNING_RATE_SCALE": _shown(self.learning_rate_scale),
            "WATTLOOP_MAX_EPOCHS": _shown(self.max_epochs),
            "WATTLOOP_POWER_LIMIT_WATTS": _shown(self.power_limit_watts),
            "WATTLOOP_PROFILE_POWER_LIMITS": "1" if self.profile_power_limits else "",
            "WATTLOOP_POWER_SELECTOR": self.power_selector,
            "WATTLOOP_MAX_SLOWDOWN_PERCENT": _shown(self.max_slowdown_percent),
            "WATTLOOP_ETA": _shown(self.eta),
            "WATTLOOP_SEED": _shown(self.seed),
            "WATTLOOP_REPORT_URL": self.report_url,
            "WATTLOOP_TOKEN_FILE": self.token_file,
            "WATTLOOP_CA_FILE": self.certificate_authority_file,
            "WATTLOOP_AGENT_SOCKET": self.agent_socket,
        }
        if self.target is not None:
            named["WATTLOOP_TARGET_METRIC"] = self.target.metric
            named["WATTLOOP_TARGET_THRESHOLD"] = _shown(self.target.threshold)
            named["WATTLOOP_TARGET_DIRECTION"] = "Maximize" if self.target.maximize else "Minimize"
            named["WATTLOOP_TARGET_CONSECUTIVE_EVALUATIONS"] = str(self.target.consecutive_evaluations)
        parameters = {f"{PARAMETER_PREFIX}{name}": value for name, value in self.parameters.items()}
        return {name: value for name, value in named.items() if value} | parameters

    @staticmethod
    def read(variables: Mapping[str, str]) -> RunEnvironment:
        """Read the variables of a process; without ``WATTLOOP_JOB`` it runs outside Wattloop, with defaults.

        Raises:
            InputError: A variable does not say what it should.

        Example:
            >>> RunEnvironment.read({}).managed
            False
        """
        defaults = RunEnvironment()
        return RunEnvironment(
            job=variables.get("WATTLOOP_JOB", ""),
            recurrence=variables.get("WATTLOOP_RECURRENCE", ""),
            batch_size=_integer(variables, "WATTLOOP_BATCH_SIZE"),
            per_device_batch_size=_integer(variables, "WATTLOOP_PER_DEVICE_BATCH_SIZE"),
            learning_rate_scale=_number(variables, "WATTLOOP_LEARNING_RATE_SCALE", defaults.learning_rate_scale),
            max_epochs=_integer(variables, "WATTLOOP_MAX_EPOCHS"),
            target=_target(variables),
            power_limit_watts=_number(variables, "WATTLOOP_POWER_LIMIT_WATTS"),
            profile_power_limits=variables.get("WATTLOOP_PROFILE_POWER_LIMITS", "") == "1",
            power_selector=_choice(variables, "WATTLOOP_POWER_SELECTOR", SELECTORS, defaults.power_selector),
            max_slowdown_percent=_number(variables, "WATTLOOP_MAX_SLOWDOWN_PERCENT", defaults.max_slowdown_percent),
            eta=_number(variables, "WATTLOOP_ETA", defaults.eta),
            seed=_integer(variables, "WATTLOOP_SEED", minimum=0),
            parameters={
                name.removeprefix(PARAMETER_PREFIX): value
                for name, value in variables.items()
                if name.startswith(PARAMETER_PREFIX)
            },
            report_url=variables.get("WATTLOOP_REPORT_URL", ""),
            token_file=variables.get("WATTLOOP_TOKEN_FILE", ""),
            certificate_authority_file=variables.get("WATTLOOP_CA_FILE", ""),
            agent_socket=variables.get("WATTLOOP_AGENT_SOCKET", ""),
            rank=_rank(variables),
        )


def _target(variables: Mapping[str, str]) -> RunTarget | None:
    metric = variables.get("WATTLOOP_TARGET_METRIC", "")
    threshold = _number(variables, "WATTLOOP_TARGET_THRESHOLD")
    if not metric or threshold is None:
        return None
    return RunTarget(
        metric,
        threshold,
        maximize=_choice(variables, "WATTLOOP_TARGET_DIRECTION", ("Maximize", "Minimize"), "Maximize") == "Maximize",
        consecutive_evaluations=_integer(variables, "WATTLOOP_TARGET_CONSECUTIVE_EVALUATIONS") or 1,
    )


def _rank(variables: Mapping[str, str]) -> int:
    """The rank as torchrun sets it, or as Kubernetes does for the pods of an indexed Job; these are not Wattloop's."""
    if not variables.get("WATTLOOP_JOB"):
        return 0
    named = (variables.get(name, "") for name in RANK_VARIABLES)
    text = next((text for text in named if text), "0")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < MAX_WHOLE_CHARACTERS else 0


def _shown(value: float | None) -> str:
    return "" if value is None else repr(value)


@overload
def _number(variables: Mapping[str, str], name: str) -> float | None: ...
@overload
def _number(variables: Mapping[str, str], name: str, default: float) -> float: ...
def _number(variables: Mapping[str, str], name: str, default: float | None = None) -> float | None:
    text = variables.get(name, "")
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InputError("the environment", _cut(text), f"a finite number in {name}")
    return value


def _integer(variables: Mapping[str, str], name: str, *, minimum: int = 1) -> int | None:
    text = variables.get(name, "")
    if not text:
        return None
    digits = text.isascii() and text.isdecimal() and len(text) <= MAX_WHOLE_CHARACTERS
    if not digits or not minimum <= int(text) < 2**64:
        raise InputError("the environment", _cut(text), f"a whole number from {minimum} to 2^64-1 in {name}")
    return int(text)


def _choice(variables: Mapping[str, str], name: str, choices: tuple[str, ...], default: str) -> str:
    text = variables.get(name) or default
    if text not in choices:
        raise InputError("the environment", _cut(text), f"one of {', '.join(choices)} in {name}")
    return text


def _cut(text: str) -> str:
    return repr(text[:80])
