"""How a run chooses the power limit of its GPUs from what was measured, and with which other ranks it measures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wattloop.power.selectors import MeasuredLimit, Selector, selector_named
from wattloop.power.shared_totals import TotalsExchange
from wattloop.wire.torch_group import torch_group

if TYPE_CHECKING:
    from wattloop.run.held_gpus import ProcessGpus
    from wattloop.run.verdicts import RankVerdicts
    from wattloop.wire.environment import RunEnvironment
    from wattloop.wire.training_messages import LimitMeasurement


class LimitChoice:
    """Chooses the limit of one process's GPUs.

    Args:
        environment: The settings of the run.
        gpus: The GPUs of this process.
        verdicts: The verdicts of several ranks; None with one.
    """

    def __init__(self, environment: RunEnvironment, gpus: ProcessGpus, verdicts: RankVerdicts | None) -> None:
        self._environment = environment
        self._gpus = gpus
        self._verdicts = verdicts

    def selector(self) -> Selector:
        """How the job chooses its power limit."""
        settings = self._environment
        return selector_named(
            settings.power_selector, eta=settings.eta, max_slowdown_percent=settings.max_slowdown_percent
        )

    def best_limit(self, measurements: tuple[LimitMeasurement, ...]) -> float:
        """The limit in watts that the selector chooses from measurements of any number of epochs."""
        per_epoch = [
            MeasuredLimit(
                each.power_limit_watts,
                each.energy_joules / each.epochs,
                each.time_seconds / each.epochs,
                self._gpus.measured_gpus,
            )
            for each in measurements
        ]
        return self.selector().select(per_epoch).power_limit_watts

    def exchange(self) -> TotalsExchange | None:
        """The exchange of readings with the other ranks, where PyTorch has a process group."""
        if self._verdicts is None or (group := torch_group()) is None:
            return None
        return TotalsExchange(group, f"{self._verdicts.name}/power")

    def scheduling_rank(self) -> int | None:
        """The rank of this process if the operator coordinates the measurement of power limits; else None."""
        by_operator = self._verdicts is not None and self._verdicts.asks_operator
        return self._environment.rank if by_operator else None
