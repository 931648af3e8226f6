"""Messages between a training process and the reporting API, the same in a cluster and in the local mode.

Every report is cumulative: it repeats the first and the newest reading of each GPU's energy counter
and all power-limit measurements so far. A lost or repeated report therefore changes nothing, and a
late one brings the operator up to date.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, ClassVar

from wattloop.wire.message_fields import Integer, MessageError, Number, Pattern, String, TruncatedString
from wattloop.wire.wire_form import MaxItems, WireForm, check_unique

MAX_REPORT_BYTES = 64 * 1024
MAX_GPUS = 64
MAX_LIMITS = 64
MAX_RANKS = 1_000_000
MAX_EPOCHS = 10_000_000
MAX_BATCH_SIZE = 2**40
MAX_SCHEDULED_LIMITS = 16
MAX_SCHEDULED_STEPS = 1_000_000_000
MAX_UUID_CHARACTERS = 96
# NVML's formats: GPU-<uuid>, MIG-<uuid>, and MIG-GPU-<uuid>/<GPU instance>/<compute instance> of older drivers.
GPU_UUID_PATTERN = "(GPU|MIG)-[0-9A-Fa-f-]{1,36}|MIG-GPU-[0-9A-Fa-f-]{1,36}/[0-9]{1,3}/[0-9]{1,3}"
GPU_UUID = re.compile(GPU_UUID_PATTERN)
MAX_GPU_UUID_CHARACTERS = 52
MAX_PRODUCT_CHARACTERS = 128
MAX_REASON_CHARACTERS = 2000
MAX_REFUSAL_CHARACTERS = 512
MAX_FAILURE_CHARACTERS = 64
MAX_COUNTER_CHARACTERS = 16
MAX_PROCESS_CHARACTERS = 64
# Far above real values, so that a sum over an attempt fits the API's decimal strings.
MAX_NUMBER = 1e14
MAX_ENERGY_MILLIJOULES = 2 * 10**14  # a GPU of 1 kW for six years
MAX_TIME_SECONDS = 1e10
MAX_POWER_WATTS = 1e6
MAX_LIMIT_WATTS = 1e4
MODEL_FOLDER = re.compile("[a-z0-9][a-z0-9.-]{0,126}")
MAX_MODEL_FOLDER_CHARACTERS = 127
MODEL_DIGEST = re.compile("[0-9a-f]{32}")
# Smallest fraction of an epoch, second or joule of a power-limit measurement.
MIN_MEASURED = 1e-6


Millijoules = Annotated[int, Integer(MAX_ENERGY_MILLIJOULES)]
ClockSeconds = Annotated[float, Number(0.0, MAX_TIME_SECONDS)]
GpuUuid = Annotated[
    str, Pattern(GPU_UUID, MAX_GPU_UUID_CHARACTERS, "a GPU's UUID as NVML writes it, such as GPU-<uuid> or MIG-<uuid>")
]


@dataclass(frozen=True)
class GpuEnergy(WireForm):
    """The energy counter of one GPU at the start of the attempt and now; simulated GPUs have simulated clocks.

    In place of a counter, a GPU without one has the integral of its power, with an uncertainty.
    """

    uuid: Annotated[GpuUuid, "UUID of the GPU."]
    start_energy_millijoules: Annotated[Millijoules, "The cumulative energy counter when the attempt began."]
    energy_millijoules: Annotated[Millijoules, "The counter now; never less than at the start."]
    start_time_seconds: Annotated[ClockSeconds, "The agent's clock when the attempt began."]
    time_seconds: Annotated[ClockSeconds, "The agent's clock now; never less than at the start."]
    uncertainty_millijoules: Annotated[
        Millijoules | None,
        "Bound of the error of the energy since the start, if the GPU has no energy counter and its power was "
        "integrated, or if its counter was reset; null if a counter measured it.",
    ] = None
    shared: Annotated[
        bool | None,
        "Whether processes of others used the GPU too since the start, so that the energy is an upper bound of this "
        "process's; null if that is not known.",
    ] = None
    counter: Annotated[
        str,
        String(MAX_COUNTER_CHARACTERS, min_length=0),
        "Identifies what counter and clock count from, such as the boot of the node and the load of the driver: values "
        "of different ones are never compared. Empty if that is not known.",
    ] = ""

    def check(self, place: str) -> None:
        """See `WireForm`: the counter and the clock do not decrease."""
        if self.energy_millijoules < self.start_energy_millijoules:
            raise MessageError(
                f"{place}energy_millijoules: found {self.energy_millijoules}, "
                f"expected at least the start's {self.start_energy_millijoules}: energy is never negative"
            )
        check_clock(place, self.start_time_seconds, self.time_seconds)


@dataclass(frozen=True)
class LimitMeasurement(WireForm):
    """Energy and time of part of an epoch at one power limit, over all GPUs of the process."""

    power_limit_watts: Annotated[
        float, Number(1.0, MAX_LIMIT_WATTS), "The limit held on each GPU; unique among the measurements in whole watts."
    ]
    energy_joules: Annotated[float, Number(MIN_MEASURED, MAX_NUMBER), "Energy of all GPUs at this limit."]
    time_seconds: Annotated[float, Number(MIN_MEASURED, MAX_TIME_SECONDS), "Duration of the measurement."]
    epochs: Annotated[float, Number(MIN_MEASURED, MAX_NUMBER), "Fraction of an epoch that the measurement covers."]


@dataclass(frozen=True)
class LimitSchedule(WireForm):
    """The power limits that all ranks measure in the same steps, one limit after another."""

    after_epoch: Annotated[
        int,
        Integer(MAX_EPOCHS, minimum=1),
        "The epoch after which the first limit begins: that of the verdict with which it came.",
    ]
    steps: Annotated[
        int,
        Integer(MAX_SCHEDULED_STEPS, minimum=1),
        "Number of optimizer steps of each limit, after one step to settle.",
    ]
    limits_watts: Annotated[
        tuple[Annotated[int, Integer(int(MAX_LIMIT_WATTS), minimum=1)], ...],
        MaxItems(MAX_SCHEDULED_LIMITS),
        "The limits in their order; without any there is no schedule.",
    ]

    def check(self, place: str) -> None:
        """See `WireForm`: each limit is measured once."""
        check_unique(f"{place}limits_watts", "limit", self.limits_watts)


@dataclass(frozen=True)
class PublishedModel(WireForm):
    """What a training process has published."""

    folder: Annotated[
        str,
        Pattern(MODEL_FOLDER, MAX_MODEL_FOLDER_CHARACTERS, "the name of a folder of spec.output.directory/attempts"),
        "Name of the folder, or last part of the URL, with the files.",
    ]
    digest: Annotated[str, Pattern(MODEL_DIGEST, 32, "32 hexadecimal digits"), "Digest of the files or of the marker."]


MAX_THRESHOLDS = 16
MAX_PROBED_PARAMETERS = 8
MAX_TRIALS = 256
MAX_TRIALS_OF_ATTEMPT = 1_000_000
MAX_CHOSEN_CHARACTERS = 128
MAX_PROBLEM_CHARACTERS = 512
MAX_PROBE_NUMBER = 1e14
MAX_PROBE_SECONDS = 1e10
MAX_PROBE_WATTS = 10_000
# As of a manifest: no probe tries another.
MAX_PROBE_BATCH_SIZE = 16_777_216

BatchSize = Annotated[int, Integer(MAX_PROBE_BATCH_SIZE, minimum=1)]
Chosen = Annotated[str, String(MAX_CHOSEN_CHARACTERS)]


@dataclass(frozen=True)
class ProbeChoice(WireForm):
    """What the training went on with after a probe."""

    threshold: Annotated[float, Number(-MAX_PROBE_NUMBER, MAX_PROBE_NUMBER), "The threshold of the probe."]
    batch_size: Annotated[BatchSize, "The global batch size."]
    parameters: Annotated[
        tuple[Chosen, ...], MaxItems(MAX_PROBED_PARAMETERS), "The values of the parameters, NAME=VALUE."
    ] = ()
    power_limit_watts: Annotated[
        float | None, Number(0.0, MAX_PROBE_WATTS), "The limit of each GPU; null if none is held."
    ] = None
    trials: Annotated[int, Integer(MAX_TRIALS), "Number of trials of this probe."] = 0
    combinations: Annotated[int, Integer(), "Number of combinations in the grid."] = 0


@dataclass(frozen=True)
class ProbeReport(WireForm):
    """The trials of a process so far, over the GPUs of all ranks; rank 0 reports them."""

    trials: Annotated[int, Integer(MAX_TRIALS_OF_ATTEMPT), "Number of trials."] = 0
    energy_joules: Annotated[float, Number(0.0, MAX_PROBE_NUMBER), "Their energy, with copies and losses."] = 0.0
    time_seconds: Annotated[float, Number(0.0, MAX_PROBE_SECONDS), "Their time."] = 0.0
    choices: Annotated[tuple[ProbeChoice, ...], MaxItems(MAX_THRESHOLDS), "The choice of each probe that ended."] = ()
    problem: Annotated[
        str,
        String(MAX_PROBLEM_CHARACTERS, min_length=0),
        "Why the latest probe tried less than the grid, or chose nothing; empty if it did not.",
    ] = ""


@dataclass(frozen=True)
class Report(WireForm):
    """A cumulative report of a training process on its attempt.

    Example:
        >>> Report.from_json({"process": "4f1d", "sequence": 1, "epoch": 1, "metric": float("nan")})
        Traceback (most recent call last):
        wattloop.wire.message_fields.MessageError: metric: found nan, expected a finite number
    """

    process: Annotated[
        str,
        String(MAX_PROCESS_CHARACTERS),
        "Identifies the process that sends the report among all that the attempt ever has, such as a random text that "
        "it makes when it starts. The epochs of the processes add up, in the order of their first reports.",
    ]
    sequence: Annotated[
        int,
        Integer(minimum=1),
        "Number of the report, which rises with each report of the process. A report whose sequence is not above the "
        "process's last one changes neither epoch nor metric.",
    ]
    epoch: Annotated[float, Number(0.0, MAX_NUMBER), "Number of epochs completed by this process."]
    metric: Annotated[
        float | None,
        Number(-MAX_NUMBER, MAX_NUMBER),
        "The target metric as last evaluated; null before the first evaluation.",
    ] = None
    diverged: Annotated[bool, "Whether the metric as last evaluated was not a finite number."] = False
    evaluations: Annotated[int, Integer(), "Number of evaluations of the metric by this process."] = 0
    consecutive_reached: Annotated[
        int | None,
        Integer(),
        "Number of consecutive evaluations, up to the last, that reached the target; null if not counted. The operator "
        "cannot count them if reports are lost.",
    ] = None
    gpus: Annotated[
        tuple[GpuEnergy, ...],
        MaxItems(MAX_GPUS),
        "One entry per GPU of the process; empty if no agent answers.",
    ] = ()
    gpu_product: Annotated[str, String(MAX_PRODUCT_CHARACTERS, min_length=0), "Product name of the GPUs."] = ""
    max_power_limit_watts: Annotated[
        float, Number(0.0, MAX_POWER_WATTS), "Sum of these GPUs' maximum power limits."
    ] = 0.0
    power_limit_watts: Annotated[
        float | None, Number(0.0, MAX_LIMIT_WATTS), "The limit held now on each GPU; null if none is held."
    ] = None
    power_limit_refusal: Annotated[
        str,
        String(MAX_REFUSAL_CHARACTERS, min_length=0),
        "Why the power limit requested last is not held; empty if it is held or none was requested.",
    ] = ""
    profile: Annotated[
        tuple[LimitMeasurement, ...],
        MaxItems(MAX_LIMITS),
        "Power limits measured in this attempt; empty unless the attempt profiles them.",
    ] = ()
    published: Annotated[
        PublishedModel | None, "What this process has published; null if nothing. Ignored before the target is reached."
    ] = None
    finished: Annotated[bool, "Whether this is the last report."] = False
    rank: Annotated[int, Integer(), "Rank of the process in a distributed run; only the metric of rank 0 counts."] = 0
    ranks: Annotated[
        int,
        Integer(MAX_RANKS),
        "Number of processes of the run; 0 or 1 if there is no other. A profile is complete with all of them.",
    ] = 1
    profile_ranks: Annotated[
        int,
        Integer(MAX_RANKS),
        "Number of ranks, from rank 0 on, whose GPUs the measurements of `profile` include; 0 or 1: those of this "
        "process alone.",
    ] = 1
    batch_size: Annotated[
        int | None,
        Integer(MAX_BATCH_SIZE),
        "Samples of an optimizer step over all devices, as the training was told: the decision's batch size, rounded "
        "down to a multiple of the devices; null if the process does not say.",
    ] = None
    failure: Annotated[
        str,
        String(MAX_FAILURE_CHARACTERS, min_length=0),
        "Type of the exception that ends the process, whose last report this is; empty if none does.",
    ] = ""
    consequence: Annotated[
        bool,
        "Whether that exception follows from another process: a lost connection to it, or a signal of the launcher.",
    ] = False
    verdict_epoch: Annotated[
        int | None,
        Integer(MAX_EPOCHS),
        "The epoch after which the process asks whether to go on, from 1; null if it does not ask. Ranks that ask get "
        "the same verdict, which is decided when rank 0 asks; the answer to another rank waits for it.",
    ] = None
    epochs_ahead: Annotated[
        int,
        Integer(MAX_EPOCHS),
        "Number of further epochs that rank 0 asks for, because they are short. A verdict covers at most a twentieth "
        "of the epochs so far.",
    ] = 0
    limit_schedule: Annotated[
        LimitSchedule | None,
        "The schedule that rank 0 proposes with its question for a verdict, to begin after that epoch; null for none. "
        "The first one is decided with the verdict.",
    ] = None
    probes: Annotated[
        ProbeReport | None, "What the probes of this process have cost and chosen so far; null if it has not probed."
    ] = None

    def check(self, place: str) -> None:
        """See `WireForm`: each GPU and each power limit has one entry."""
        if len({gpu.uuid for gpu in self.gpus}) != len(self.gpus):
            raise MessageError(f"{place}gpus: found the same uuid twice, expected one entry per GPU")
        # Limits are stored in whole watts.
        if len({round(limit.power_limit_watts) for limit in self.profile}) != len(self.profile):
            raise MessageError(
                f"{place}profile: found the same power limit twice, expected one entry per limit, in whole watts"
            )


@dataclass(frozen=True)
class Answer(WireForm):
    """The reporting API's answer to a report."""

    ignores_unknown_fields: ClassVar[bool] = True
    always_complete: ClassVar[bool] = True

    stop: Annotated[bool, "Whether the training process must stop now."] = False
    reason: Annotated[str, TruncatedString(MAX_REASON_CHARACTERS), "Why, for the log of the training process."] = ""
    reached: Annotated[
        bool, "Whether the operator holds the target to be reached, so that rank 0 may publish the model."
    ] = False
    decided_epoch: Annotated[
        int, Integer(), "All ranks go on after each epoch up to this one, and up to the one before `stop_epoch`."
    ] = 0
    stop_epoch: Annotated[int | None, Integer(), "The epoch after which all ranks stop; null if none is decided."] = (
        None
    )
    limit_schedule: Annotated[
        LimitSchedule | None, "How all ranks measure power limits in the same steps; null if none is decided."
    ] = None
    choice_epoch: Annotated[
        int | None,
        Integer(),
        "The epoch after which all ranks hold the limit that they choose from `profile`; null before all have measured "
        "the last limit of the schedule.",
    ] = None
    profile: Annotated[
        tuple[LimitMeasurement, ...],
        MaxItems(MAX_LIMITS),
        "The energy of all ranks and the time of the slowest one for an epoch at each limit that all ranks have "
        "measured; empty without `choice_epoch`.",
    ] = ()
    profile_gpus: Annotated[int, Integer(), "Number of GPUs that `profile` includes."] = 0

    def goes_on_after(self, epoch: int) -> bool | None:
        """The verdict on an epoch; None if it is not decided.

        Example:
            >>> answer = Answer(decided_epoch=3)
            >>> answer.goes_on_after(3), answer.goes_on_after(4), Answer(stop_epoch=4).goes_on_after(4)
            (True, None, False)
        """
        if self.stop_epoch is not None:
            return epoch < self.stop_epoch
        return True if epoch <= self.decided_epoch else None


def check_clock(place: str, start_seconds: float, seconds: float) -> None:
    """Check that a clock is not behind its start.

    Raises:
        MessageError: The clock is behind its start.
    """
    if seconds < start_seconds:
        raise MessageError(f"{place}time_seconds: found {seconds}, expected at least the start's {start_seconds}")


def holds_chosen_limit(held_watts: float | None, measured_watts: Iterable[float]) -> bool:
    """Whether a training that measures power limits holds the one that it chose, not the next one to measure.

    Example:
        >>> holds_chosen_limit(250, (300, 250)), holds_chosen_limit(200, (300, 250))
        (True, False)
    """
    return held_watts in set(measured_watts)
