"""The status of a RecurringTrainingJob: is it learning, what does it cost, what did it save, when does it run next."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from wattloop_operator.api.attempt import Result
from wattloop_operator.api.field_types import DecimalString, NonNegativeDecimalString, Time
from wattloop_operator.api.meta import Conditions
from wattloop_operator.api.model import ATOMIC, ApiModel, list_map

RecurrenceName = Annotated[str, Field(min_length=1, max_length=63)]


class Counts(ApiModel):
    """How many of what there were."""

    active: int = Field(default=0, description="Runs going on now.", ge=0)
    recurrences: int = Field(default=0, description="Recurrences started so far.", ge=0)
    attempts: int = Field(default=0, description="Attempts started so far, retries included.", ge=0)
    reached: int = Field(default=0, description="Recurrences that reached the target.", ge=0)
    failed: int = Field(default=0, description="Recurrences that ended without it.", ge=0)
    missed: int = Field(default=0, description="Starts that were missed.", ge=0)


class Money(ApiModel):
    """An amount of money."""

    amount: DecimalString = Field(description="The amount.")
    currency: str = Field(description="Its currency, an ISO 4217 code.", max_length=3)


class ArmStatus(ApiModel):
    """What the policy believes of one batch size."""

    batch_size: int = Field(description="The batch size.", ge=1)
    observations: int = Field(default=0, description="How many observations inform it.", ge=0)
    mean_cost_joules: NonNegativeDecimalString | None = Field(
        default=None, description="Expected cost of reaching the target with it, in joules."
    )
    low_cost_joules: NonNegativeDecimalString | None = Field(
        default=None, description="Lower end of the central 90 % interval of that cost."
    )
    high_cost_joules: NonNegativeDecimalString | None = Field(default=None, description="Upper end of that interval.")
    crashes: int = Field(default=0, description="Crashes in a row without success in between.", ge=0)
    pruned: bool = Field(default=False, description="Whether it is never tried again; note says why.")
    note: str = Field(default="", description="What else is to be said of it.", max_length=512)


class Totals(ApiModel):
    """What all attempts so far took."""

    gpu_energy_joules: NonNegativeDecimalString = Field(description="Energy of the GPUs, in joules.")
    duration_seconds: NonNegativeDecimalString = Field(description="Time, in seconds.")
    cost_joules: NonNegativeDecimalString = Field(description="Cost, in joules.")
    money: Money | None = Field(default=None, description="What the energy cost, where a price is given.")
    carbon_grams: NonNegativeDecimalString | None = Field(
        default=None, description="What it emitted, in grams of CO2 equivalent, where the intensity is given."
    )


class Savings(ApiModel):
    """What was saved against running every recurrence in the default configuration."""

    default_cost_joules: NonNegativeDecimalString | None = Field(
        default=None, description="Expected cost of one recurrence in the default configuration, in joules."
    )
    cost_joules: DecimalString = Field(description="Cost saved so far, in joules; negative while learning costs more.")
    cost_percent: DecimalString = Field(description="The same in percent of what the default would have cost.")
    latest_cost_percent: DecimalString | None = Field(
        default=None, description="What the latest recurrence saved, in percent of the default's cost."
    )
    gpu_energy_joules: DecimalString | None = Field(default=None, description="Energy saved so far, in joules.")
    money: Money | None = Field(default=None, description="Money saved so far, where a price is given.")
    carbon_grams: DecimalString | None = Field(default=None, description="Emissions saved so far, in grams.")


class ActiveRecurrence(ApiModel):
    """A recurrence that is going on."""

    name: RecurrenceName = Field(description="Name of its TrainingRecurrence.")
    uid: str = Field(default="", description="Its uid.", max_length=64)


class RecentRecurrence(ApiModel):
    """The outcome of one recurrence, in short."""

    name: RecurrenceName = Field(description="Name of its last attempt's TrainingRecurrence.")
    index: int = Field(description="Its index, from 0.", ge=0)
    attempts: int = Field(default=1, description="How many attempts it took.", ge=1)
    batch_size: int = Field(description="Batch size of its last attempt.", ge=1)
    power_limit_watts: int | None = Field(default=None, description="Power limit held at its end, in watts.", ge=0)
    result: Result | None = Field(default=None, description="How it ended; absent while it goes on.")
    cost_joules: NonNegativeDecimalString | None = Field(
        default=None, description="Its cost over all attempts, in joules."
    )
    relative_to_default_percent: DecimalString | None = Field(
        default=None, description="Its cost in percent of the default configuration's."
    )
    gpu_energy_joules: NonNegativeDecimalString | None = Field(
        default=None, description="Its energy over all attempts, in joules."
    )
    duration_seconds: NonNegativeDecimalString | None = Field(
        default=None, description="Its time over all attempts, in seconds."
    )
    completion_time: Time | None = Field(default=None, description="When it ended.")
    reason: str = Field(default="", description="Why its batch size was chosen.", max_length=1024)


class RecurringTrainingJobStatus(ApiModel):
    """What Wattloop says of the job."""

    observed_generation: int | None = Field(default=None, description="The generation of the spec seen last.", ge=0)
    conditions: Conditions = ()
    active: Annotated[tuple[ActiveRecurrence, ...], Field(max_length=64, json_schema_extra=list_map("name"))] = Field(
        default=(), description="The recurrences going on now."
    )
    next_schedule_time: Time | None = Field(default=None, description="When the next run starts.")
    last_schedule_time: Time | None = Field(default=None, description="The latest time for which a run was started.")
    last_missed_time: Time | None = Field(default=None, description="The latest time whose start was missed.")
    last_run_request: str | None = Field(
        default=None, description="The value of spec.runRequest that was acted on last.", max_length=128
    )
    counts: Counts = Field(default=Counts(), description="How many recurrences and attempts there were.")
    best_batch_size: int | None = Field(default=None, description="The batch size believed cheapest.", ge=1)
    arms: Annotated[tuple[ArmStatus, ...], Field(max_length=64, json_schema_extra=list_map("batchSize"))] = Field(
        default=(), description="What the policy believes of every batch size."
    )
    totals: Totals | None = Field(default=None, description="What all attempts so far took.")
    savings: Savings | None = Field(default=None, description="What was saved against the default configuration.")
    recent_recurrences: Annotated[tuple[RecentRecurrence, ...], Field(max_length=10, json_schema_extra=ATOMIC)] = Field(
        default=(), description="The last 10 recurrences with their cost, the newest first."
    )
