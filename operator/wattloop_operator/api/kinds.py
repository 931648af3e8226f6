"""The four kinds of the API."""

from __future__ import annotations

from wattloop_operator.api.frequency_plan import FrequencyPlan
from wattloop_operator.api.gpu_power_policy import GPUPowerPolicy
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.api.training_recurrence import TrainingRecurrence

Kind = RecurringTrainingJob | TrainingRecurrence | GPUPowerPolicy | FrequencyPlan
KINDS: tuple[type[Kind], ...] = (RecurringTrainingJob, TrainingRecurrence, GPUPowerPolicy, FrequencyPlan)
