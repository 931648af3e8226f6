"""Random callers, failures, crashes and other actors against a model of the leases."""

import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from support.agents.memory_devices import CLOCK_STEPS, MemoryDevices
from wattloop_agent.gpu_setting import GpuSetting
from wattloop_agent.power_controller.lease_decisions import HoldRequest
from wattloop_agent.power_controller.lease_manager import LeaseManager
from wattloop_agent.refusals import Reason, RequestError

GPUS = ("GPU-0", "GPU-1", "GPU-2")
FOUND = {"GPU-0": 400.0, "GPU-1": 300.0, "GPU-2": 250.5}
HELD_SETTINGS = (GpuSetting.POWER_LIMIT, GpuSetting.GRAPHICS_CLOCK)
owners = st.sampled_from([f"owner {number}" for number in range(5)])
some_gpus = st.lists(st.sampled_from(GPUS), min_size=1, max_size=3, unique=True).map(tuple)
watts = st.sampled_from([100.0, 150.0, 200.25, 400.0])
too_much = st.sampled_from([99.0, 401.0, 0.0, -5.0])


class Leases(RuleBasedStateMachine):
    """`held` is the model: by GPU, (owner, watts), according to the answers that callers got."""

    def __init__(self) -> None:
        super().__init__()
        self.temporary = tempfile.TemporaryDirectory()
        self.devices = MemoryDevices(dict(FOUND))
        self.held: dict[str, tuple[str, float]] = {}
        self.clocks: dict[str, tuple[str, float]] = {}
        self.now = 0.0
        self.start()

    def start(self) -> None:
        self.lease_manager = LeaseManager(self.devices, Path(self.temporary.name), "boot", lambda: self.now)
        self.lease_manager.recover()

    def teardown(self) -> None:
        self.lease_manager.close()
        self.temporary.cleanup()

    def refusal_of(self, request: HoldRequest) -> Reason | None:
        try:
            self.lease_manager.hold(request)
        except RequestError as refusal:
            return refusal.reason
        return None

    def expected(self, owner: str, gpus: tuple[str, ...], otherwise: Reason | None) -> set[Reason | None]:
        """The allowed answers to a hold."""
        others = {held_by[gpu][0] for held_by in (self.held, self.clocks) for gpu in gpus if gpu in held_by} - {owner}
        if others:
            return {Reason.NOT_YOURS}
        answers = {otherwise}
        if self.devices.failing & set(gpus):
            # The failing GPU may still be releasing for the previous owner.
            answers = {otherwise or Reason.DEVICE_FAILED, Reason.NOT_YOURS}
        return answers

    @rule(owner=owners, gpus=some_gpus, limit=watts)
    def hold(self, owner: str, gpus: tuple[str, ...], limit: float) -> None:
        expected = self.expected(owner, gpus, None)
        refusal = self.refusal_of(HoldRequest(gpus, GpuSetting.POWER_LIMIT, limit, owner))
        assert refusal in expected
        if refusal is None:
            self.held.update(dict.fromkeys(gpus, (owner, limit)))

    @rule(owner=owners, gpus=some_gpus, clock=st.sampled_from(CLOCK_STEPS))
    def lock(self, owner: str, gpus: tuple[str, ...], clock: float) -> None:
        expected = self.expected(owner, gpus, None)
        refusal = self.refusal_of(HoldRequest(gpus, GpuSetting.GRAPHICS_CLOCK, clock, owner))
        assert refusal in expected
        if refusal is None:
            self.clocks.update(dict.fromkeys(gpus, (owner, clock)))

    @rule(owner=owners, gpus=some_gpus, limit=too_much)
    def hold_out_of_range(self, owner: str, gpus: tuple[str, ...], limit: float) -> None:
        expected = self.expected(owner, gpus, Reason.OUT_OF_RANGE)
        assert self.refusal_of(HoldRequest(gpus, GpuSetting.POWER_LIMIT, limit, owner)) in expected

    @rule(owner=owners, gpus=st.none() | some_gpus, setting=st.none() | st.sampled_from(HELD_SETTINGS))
    def release(self, owner: str, gpus: tuple[str, ...] | None, setting: GpuSetting | None) -> None:
        others = {held_by[gpu][0] for held_by in (self.held, self.clocks) for gpu in gpus or () if gpu in held_by} - {
            owner
        }
        try:
            self.lease_manager.release(owner, gpus, setting)
        except RequestError as refusal:
            reason: Reason | None = refusal.reason
        else:
            reason = None
        if others:
            assert reason is Reason.NOT_YOURS
            return
        assert reason in ({None, Reason.NOT_RESTORED, Reason.NOT_YOURS} if self.devices.failing else {None})
        if reason is Reason.NOT_YOURS:
            return
        for held_by, held_setting in zip((self.held, self.clocks), HELD_SETTINGS, strict=True):
            for gpu in gpus or GPUS:
                if setting in {None, held_setting} and held_by.get(gpu, ("",))[0] == owner:
                    del held_by[gpu]

    @rule(gpu=st.sampled_from(GPUS))
    @precondition(lambda self: not self.devices.failing)
    def a_device_fails(self, gpu: str) -> None:
        self.devices.failing = {gpu}

    @rule()
    def devices_are_well_again(self) -> None:
        self.devices.failing = set()
        self.lease_manager.tick()

    @rule()
    def killed_and_started_again(self) -> None:
        self.lease_manager.tick()
        self.lease_manager.close()
        self.start()

    @invariant()
    def every_gpu_is_restored_or_held_as_answered(self) -> None:
        if self.devices.failing:
            return
        self.lease_manager.tick()
        wanted = {gpu: self.held[gpu][1] if gpu in self.held else FOUND[gpu] for gpu in GPUS}
        assert self.devices.limits == wanted
        clocks = {gpu: clock for gpu, clock in self.devices.clocks.items() if clock is not None}
        assert clocks == {gpu: clock for gpu, (_, clock) in self.clocks.items()}

    @invariant()
    def the_leases_are_those_of_the_answers(self) -> None:
        if self.devices.failing:
            return
        actual = {(lease.gpu, lease.setting): (lease.owner, lease.held) for lease in self.lease_manager.leases.values()}
        model = {(gpu, GpuSetting.POWER_LIMIT): held for gpu, held in self.held.items()}
        model |= {(gpu, GpuSetting.GRAPHICS_CLOCK): held for gpu, held in self.clocks.items()}
        assert actual == model


Leases.TestCase.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)
test_only_owners_change_a_gpu_and_whatever_fails_it_goes_back = Leases.TestCase
