"""The environment variables that Wattloop injects into a training process.

The operator and the local mode write them with `RunEnvironment.variables`, and the training process
reads them with `RunEnvironment.read`, so that both sides agree.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import overload

from wattloop.errors import InputError
from wattloop.wire.launcher import PODS_VARIABLE, process_rank

# The whole prefix is reserved, so that variables of later versions break no existing manifest.
PREFIX = "WATTLOOP_"
PARAMETER_PREFIX = f"{PREFIX}PARAM_"
SELECTORS = ("Energy", "Time", "Cost", "MaxSlowdown")
MAX_INTEGER_CHARACTERS = 20


@dataclass(frozen=True)
class RunTarget:
    """The metric value at which a run is done.

    Attributes:
        metric: Name of the metric.
        threshold: The value to reach.
        maximize: Whether higher is better.
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


@dataclass(frozen=True)
class RunEnvironment:
    """The settings of a training process.

    Attributes:
        job: namespace/name of the RecurringTrainingJob; empty outside Wattloop.
        recurrence: Name of the TrainingRecurrence.
        batch_size: The global batch size; None outside Wattloop.
        per_device_batch_size: The batch size of one GPU; None outside Wattloop.
        learning_rate_scale: Factor for the script's learning rate at this batch size.
        max_epochs: Maximum number of epochs; None outside Wattloop.
        target: The target of the run; None outside Wattloop.
        power_limit_watts: The limit to hold on each GPU; None to leave GPUs unchanged.
        profile_power_limits: Whether to measure the power limits first and then hold the best one.
        power_selector: Rule that selects the best limit: Energy, Time, Cost or MaxSlowdown.
        max_slowdown_percent: Allowed slowdown for MaxSlowdown.
        eta: Weight of energy in the cost, from 0 to 1.
        seed: Seed of the training's random numbers, different for each attempt; None outside Wattloop.
        parameters: Further hyperparameters by name.
        progress_deadline_seconds: Seconds of silence after which the operator ends the attempt as hung; None: never.
        output_directory: Folder or URL for the files of this attempt; empty for none.
        warm_start_directory: Link or marker of the model to begin with; empty to begin without one.
        current_model: Link or marker of the published model; empty for none.
        report_url: Destination of reports; empty to send none.
        token_file: File with the bearer token of reports.
        certificate_authority_file: Certificates to verify the server of the report URL with.
        agent_socket: The node agent's socket; empty for none.
        pods: Number of pods of an indexed Job; 1 if there are no others.
        rank: Rank of this process in a distributed run, from its launcher; only the metric of rank 0
            counts.
        ranks: Number of processes of the run, from its launcher.
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
    progress_deadline_seconds: float | None = None
    output_directory: str = ""
    warm_start_directory: str = ""
    current_model: str = ""
    report_url: str = ""
    token_file: str = ""
    certificate_authority_file: str = ""
    agent_socket: str = ""
    pods: int = 1
    rank: int = 0
    ranks: int = 1

    @property
    def managed(self) -> bool:
        """Whether Wattloop started this process."""
        return bool(self.job)

    def variables(self) -> dict[str, str]:
        """These settings as environment variables; empty values are omitted."""
        named = {
            "WATTLOOP_JOB": self.job,
            "WATTLOOP_RECURRENCE": self.recurrence,
            "WATTLOOP_BATCH_SIZE": _formatted(self.batch_size),
            "WATTLOOP_PER_DEVICE_BATCH_SIZE": _formatted(self.per_device_batch_size),
            "WATTLOOP_LEARNING_RATE_SCALE": _formatted(self.learning_rate_scale),
            "WATTLOOP_MAX_EPOCHS": _formatted(self.max_epochs),
            "WATTLOOP_POWER_LIMIT_WATTS": _formatted(self.power_limit_watts),
            "WATTLOOP_PROFILE_POWER_LIMITS": "1" if self.profile_power_limits else "",
            "WATTLOOP_POWER_SELECTOR": self.power_selector,
            "WATTLOOP_MAX_SLOWDOWN_PERCENT": _formatted(self.max_slowdown_percent),
            "WATTLOOP_ETA": _formatted(self.eta),
            "WATTLOOP_SEED": _formatted(self.seed),
            "WATTLOOP_PROGRESS_DEADLINE_SECONDS": _formatted(self.progress_deadline_seconds),
            "WATTLOOP_OUTPUT_DIR": self.output_directory,
            "WATTLOOP_WARM_START_DIR": self.warm_start_directory,
            "WATTLOOP_CURRENT_MODEL": self.current_model,
            "WATTLOOP_REPORT_URL": self.report_url,
            "WATTLOOP_TOKEN_FILE": self.token_file,
            "WATTLOOP_CA_FILE": self.certificate_authority_file,
            "WATTLOOP_AGENT_SOCKET": self.agent_socket,
            PODS_VARIABLE: str(self.pods) if self.pods > 1 else "",
        }
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
        defaults = RunEnvironment()
        # Outside Wattloop nothing depends on other processes.
        place = process_rank(variables if variables.get("WATTLOOP_JOB") else {})
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
            progress_deadline_seconds=_number(variables, "WATTLOOP_PROGRESS_DEADLINE_SECONDS"),
            output_directory=variables.get("WATTLOOP_OUTPUT_DIR", ""),
            warm_start_directory=variables.get("WATTLOOP_WARM_START_DIR", ""),
            current_model=variables.get("WATTLOOP_CURRENT_MODEL", ""),
            report_url=variables.get("WATTLOOP_REPORT_URL", ""),
            token_file=variables.get("WATTLOOP_TOKEN_FILE", ""),
            certificate_authority_file=variables.get("WATTLOOP_CA_FILE", ""),
            agent_socket=variables.get("WATTLOOP_AGENT_SOCKET", ""),
            pods=_integer(variables, PODS_VARIABLE) or 1,
            rank=place.rank,
            ranks=place.ranks,
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


def _formatted(value: float | None) -> str:
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
        raise InputError("the environment", _quoted(text), f"a finite number in {name}")
    return value


def _integer(variables: Mapping[str, str], name: str, *, minimum: int = 1) -> int | None:
    text = variables.get(name, "")
    if not text:
        return None
    digits = text.isascii() and text.isdecimal() and len(text) <= MAX_INTEGER_CHARACTERS
    if not digits or not minimum <= int(text) < 2**64:
        raise InputError("the environment", _quoted(text), f"a whole number from {minimum} to 2^64-1 in {name}")
    return int(text)


def _choice(variables: Mapping[str, str], name: str, choices: tuple[str, ...], default: str) -> str:
    text = variables.get(name) or default
    if text not in choices:
        raise InputError("the environment", _quoted(text), f"one of {', '.join(choices)} in {name}")
    return text


def _quoted(text: str) -> str:
    return repr(text[:80])
