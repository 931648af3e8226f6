"""The value to set is within the ranges of device, administrator and policies; clocks are at a step."""

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.agents.memory_devices import CLOCK_STEPS, MemoryDevices
from wattloop_agent.gpu_setting import AllowedRange, GpuSetting
from wattloop_agent.power_controller.lease_decisions import HoldRequest, values_to_set
from wattloop_agent.power_controller.lease_manager import LeaseManager
from wattloop_agent.power_controller.power_controller_loop import PowerControllerVerbs
from wattloop_agent.refusals import Reason, RequestError

GPU = "GPU-0"
CLOCKS = {GPU: AllowedRange(CLOCK_STEPS[0], CLOCK_STEPS[-1], CLOCK_STEPS)}
WATTS = {GPU: AllowedRange(100.0, 400.0)}


def clock(value: float, within: AllowedRange | None = None) -> HoldRequest:
    return HoldRequest((GPU,), GpuSetting.GRAPHICS_CLOCK, value, "owner", within=within)


@pytest.mark.parametrize(
    ("requested", "within", "expected"),
    [
        (1000.0, None, 1005.0),
        (997.5, None, 990.0),
        (210.0, None, 210.0),
        (1410.0, None, 1410.0),
        (1000.0, AllowedRange(-math.inf, 1000.0), 990.0),
        (1000.0, AllowedRange(1000.0, math.inf), 1005.0),
        (996.0, AllowedRange(995.0, math.inf), 1005.0),
    ],
)
def test_a_clock_is_set_at_the_nearest_step_that_is_within_every_range(
    requested: float, within: AllowedRange | None, expected: float
) -> None:
    assert values_to_set(clock(requested, within), CLOCKS, None) == {GPU: expected}


@given(
    requested=st.floats(0, 2000),
    ends=st.tuples(st.floats(0, 2000), st.floats(0, 2000)),
    bounds=st.tuples(st.floats(0, 2000), st.floats(0, 2000)),
)
def test_only_a_step_within_all_ranges_is_set(
    requested: float, ends: tuple[float, float], bounds: tuple[float, float]
) -> None:
    within, administrator = AllowedRange(*ends), AllowedRange(*bounds)
    possible = [step for step in CLOCK_STEPS if ends[0] <= step <= ends[1] and bounds[0] <= step <= bounds[1]]
    inside = all(
        minimum <= requested <= maximum for minimum, maximum in (ends, bounds, (CLOCK_STEPS[0], CLOCK_STEPS[-1]))
    )
    if not inside or not possible:
        with pytest.raises(RequestError) as refused:
            values_to_set(clock(requested, within), CLOCKS, administrator)
        assert refused.value.reason is Reason.OUT_OF_RANGE
        return
    value = values_to_set(clock(requested, within), CLOCKS, administrator)[GPU]
    assert value in possible
    assert abs(value - requested) == min(abs(step - requested) for step in possible)


@pytest.mark.parametrize(
    ("request_", "bounds", "message"),
    [
        (
            HoldRequest((GPU,), GpuSetting.POWER_LIMIT, 350.0, "owner"),
            None,
            "GPU GPU-0: a power limit of 350 watts is out of range: the device accepts 100 to 300 watts, no other",
        ),
        (
            HoldRequest((GPU,), GpuSetting.POWER_LIMIT, 120.0, "owner"),
            AllowedRange(150.0, 250.0),
            "the device accepts 100 to 300 watts, the administrator allows 150 to 250",
        ),
        (
            HoldRequest((GPU,), GpuSetting.POWER_LIMIT, 240.0, "owner", within=AllowedRange(100.0, 200.0)),
            AllowedRange(150.0, 250.0),
            "the administrator allows 150 to 250, the policies of this node allow 100 to 200",
        ),
    ],
)
def test_a_refusal_names_every_range(request_: HoldRequest, bounds: AllowedRange | None, message: str) -> None:
    with pytest.raises(RequestError, match=r"^OutOfRange: ") as refused:
        values_to_set(request_, {GPU: AllowedRange(100.0, 300.0)}, bounds)
    assert message in refused.value.message


def test_a_range_between_two_steps_is_refused() -> None:
    with pytest.raises(
        RequestError, match="a graphics clock of 1000 megahertz has no step of the device within all ranges"
    ):
        values_to_set(clock(1000.0, AllowedRange(995.0, 1003.0)), CLOCKS, None)


@pytest.mark.parametrize(
    ("ends", "watts", "held"),
    [({}, 390.0, 390.0), ({"minimum": 150, "maximum": 200}, 150.0, 150.0), ({"maximum": 200.0}, 201.0, None),
     ({"minimum": 0, "maximum": 9999}, 401.0, None), ({"minimum": -5, "maximum": 9999}, 399.0, None)]
)  # fmt: skip
def test_the_monitors_range_narrows_the_power_controllers_own_and_never_widens_it(
    ends: dict[str, float], watts: float, held: float | None, tmp_path: Path
) -> None:
    bounds = {GpuSetting.POWER_LIMIT: AllowedRange(0.0, 390.0)}
    lease_manager = LeaseManager(MemoryDevices({GPU: 400.0}), tmp_path, "boot", lambda: 0.0, bounds=bounds)
    lease_manager.recover()
    handlers = PowerControllerVerbs(lease_manager, lambda: 0.0)
    request = {"verb": "hold_limit", "gpus": [GPU], "watts": watts, "owner": "a", **ends}
    if held is None:
        with pytest.raises(RequestError, match="OutOfRange"):
            handlers.answer(request)
    else:
        handlers.answer(request)
    assert [lease.held for lease in lease_manager.leases.values()] == ([] if held is None else [held])
    lease_manager.close()


def test_the_power_controller_lists_its_own_bounds(tmp_path: Path) -> None:
    bounds = {GpuSetting.POWER_LIMIT: AllowedRange(150.0, math.inf), GpuSetting.MEMORY_CLOCK: AllowedRange(0.0, 2000.0)}
    lease_manager = LeaseManager(MemoryDevices({GPU: 400.0}), tmp_path, "boot", lambda: 0.0, bounds=bounds)
    lease_manager.recover()
    listed = PowerControllerVerbs(lease_manager, lambda: 0.0).answer({"verb": "list"})
    assert isinstance(listed, dict)
    assert listed["bounds"] == {"power_limit": [150.0, None], "memory_clock": [0.0, 2000.0]}
    lease_manager.close()
