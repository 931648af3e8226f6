"""Lost or misattributed energy is detected; energy within its stated uncertainty is accepted."""

from typing import Any

import pytest

from support.training_journal import EnergyUse, ReportedEnergy, not_reported

ENERGY_USES = {
    "digits-0-abcde": EnergyUse(worked_joules=10_000.0, aligned_joules=2_000.0),
    "digits-00-abcde": EnergyUse(5.0),
}


def attempt(joules: float | None, **usage: Any) -> dict[str, Any]:
    reported = {} if joules is None else {"usage": {"gpuEnergyJoules": str(joules), "devices": 1, **usage}}
    pods = [{"uid": "pod-uid", "node": "node"}]
    return {"metadata": {"name": "digits-0"}, "status": {"result": "Reached", "pods": pods, **reported}}


BY_PROCESS = {"energySource": "Process", "uncertaintyJoules": "100"}
BY_AGENT = {"energySource": "Agent", "uncertaintyJoules": "100", "coveragePercent": "100"}
A_PART = {"energySource": "Agent", "uncertaintyJoules": "100", "coveragePercent": "40"}


@pytest.mark.parametrize(
    ("joules", "usage", "can_be"),
    [
        (10_000, BY_PROCESS, True),
        (9_821, BY_PROCESS, True),
        (9_819, BY_PROCESS, False),
        (10_179, BY_PROCESS, True),
        (10_181, BY_PROCESS, False),
        (12_179, BY_AGENT, True),
        (12_181, BY_AGENT, False),
        (0, BY_AGENT, False),
        (4_000, A_PART, True),
        (4_000, {"energySource": "Process"}, True),
        (10_081, {"energySource": "Process"}, False),
        (None, {}, True),
    ],
)
def test_reported_and_actual_energy_differ_by_at_most_the_stated_uncertainty(
    joules: float | None, usage: dict[str, str], can_be: bool
) -> None:
    reported = ReportedEnergy.of(attempt(joules, **usage), ENERGY_USES)
    assert (reported.min_joules <= reported.reported_joules <= reported.max_joules) is can_be


@pytest.mark.parametrize(
    ("joules", "usage", "missing"),
    [(None, {}, True), (4_000, {"energySource": "Process"}, True), (4_000, A_PART, True), (10_000, BY_AGENT, False)],
)
def test_energy_that_an_agent_knew_must_be_reported(joules: float | None, usage: dict[str, str], missing: bool) -> None:
    assert list(not_reported([attempt(joules, **usage)], {"pod-uid"})) == (["digits-0"] if missing else [])
    assert list(not_reported([attempt(joules, **usage)], {"another"})) == []
