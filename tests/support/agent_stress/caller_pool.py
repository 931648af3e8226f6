"""Fifty callers, what befalls them and the GPUs, and the check of every answer against the model."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from nvml_simulator import Machine
from support.agent_stress.agent_model import GRAPHICS, MEMORY, POWER, Fault, Identity, Model, RefusedByModel
from support.agent_stress.caller_identities import Identities
from support.agent_stress.caller_processes import CallerProcess, CallerSpawner
from support.agent_stress.node_in_process import SAMPLE_SECONDS, NodeInProcess
from support.agent_stress.random_requests import WATTS, Line, random_line

PATIENCE_SECONDS = 20.0
POLL_SECONDS = 0.002
# The ledger remembers 256 steps of each counter: what it holds is flat once it has seen so many.
EDGES = 260
# What NVML may answer, and what the agent makes of it.
CODES = {2: "OutOfRange", 3: "NotSupported", 4: "NotPermitted", 15: "GpuLost", 999: "DeviceFailed"}
LISTED = ("uuid", "setting", "found", "held", "owner")
SETS = {POWER: "PowerManagementLimit", GRAPHICS: "GpuLockedClocks", MEMORY: "MemoryLockedClocks"}


@dataclass
class Caller:
    """A process, its identity and a connection of it."""

    process: CallerProcess
    who: Identity
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def ask(self, data: bytes) -> dict[str, Any]:
        self.writer.write(data + b"\n")
        async with asyncio.timeout(PATIENCE_SECONDS):
            answer: dict[str, Any] = json.loads(await self.reader.readline())
        return answer


class CallerPool:
    """The callers of one node, and everything that happens to it.

    Attributes:
        counts: What happened, and how often.
        refusals: The answers that were refusals, by reason.
    """

    def __init__(
        self,
        node: NodeInProcess,
        spawner: CallerSpawner,
        identities: Identities,
        machine: Machine,
        model: Model,
        chance: Random,
    ) -> None:
        self.node = node
        self._spawner = spawner
        self._identities = identities
        self._machine = machine
        self._model = model
        self._chance = chance
        self._gpus = [gpu.uuid for gpu in machine.describe().gpus]
        self._begin_millijoules: dict[str, int] = {}
        self._callers: list[Caller] = []
        self._dead: deque[str] = deque(maxlen=200)
        self._lately: deque[object] = deque(maxlen=6)
        self.counts: Counter[str] = Counter()
        self.refusals: Counter[str] = Counter()

    async def start(self) -> None:
        """The agent serves and meters from here on."""
        await self.node.start()
        await self._until(lambda: len(self.node.booked_millijoules()) == len(self._gpus), "all GPUs are looked at")
        booked = self.node.booked_millijoules()
        self._begin_millijoules = {uuid: counter - booked[uuid] for uuid, counter in self._counters().items()}
        self.node.sample_every(POLL_SECONDS)
        for _ in range(EDGES):
            self._machine.idle(self._gpus, 1.0)
            await self._check_energy()
        self.node.sample_every(SAMPLE_SECONDS)

    async def fill(self, size: int) -> None:
        """New callers, until there are so many."""
        newborn = [self._spawner.born() for _ in range(size - len(self._callers))]
        for process, who in zip(newborn, await self._identities.known(newborn) if newborn else (), strict=True):
            self._callers.append(Caller(process, who, *await self._connected(process)))

    async def close(self) -> None:
        """Everyone leaves."""
        for caller in self._callers:
            caller.writer.close()
            caller.process.control.close()
        self._callers.clear()
        await self.connections_are_the_callers()
        await self.node.close()

    async def connections_are_the_callers(self) -> None:
        """The agent has noticed who is gone."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while self.node.server.connections != len(self._callers):
                await asyncio.sleep(0)

    async def burst(self, seconds_a_request: float) -> None:
        """Something happens, then some callers ask at once, then time passes."""
        await self._something_happens()
        size = 1 if self._chance.random() < 0.9 else self._chance.randint(2, len(self._callers))
        asking = self._some_callers(size)
        lines = [random_line(self._chance, self._gpus, self._likely(each.who)) for each in asking]
        fault = self._inject_fault(lines[0]) if size == 1 and self._chance.random() < 0.2 else None
        answers = await asyncio.gather(*(each.ask(line.data) for each, line in zip(asking, lines, strict=True)))
        self._check(asking, lines, answers, fault)
        self._machine.clear_faults()
        self.counts["requests"] += size
        await self._pass_time(self._chance.expovariate(1 / (seconds_a_request * size)))
        self._check_gpus()

    def _some_callers(self, size: int) -> list[Caller]:
        owners = [each for each in self._callers if each.who.own]
        if size == 1 and owners and self._chance.random() < 0.8:
            return [self._chance.choice(owners)]
        return self._chance.sample(self._callers, size)

    def _likely(self, who: Identity) -> list[str]:
        """The GPUs that it asks for mostly: its own; where all are everyone's, those that no other holds."""
        if who.own is not None:
            return sorted(who.own | who.shared)
        foreign = {gpu for (gpu, _), lease in self._model.leases.items() if lease.owner != who.owner}
        return [gpu for gpu in self._gpus if gpu not in foreign]

    async def everyone_gives_back(self) -> None:
        """Half of them release, then all die; then every GPU is as it was found."""
        for number, caller in enumerate(list(self._callers)):
            if number % 2:
                line = Line({"verb": "release"}, b'{"verb": "release"}')
                self._check([caller], [line], [await caller.ask(line.data)], None)
            await self._dies(caller)
        assert self._model.leases == {}
        assert self.node.lease_manager.leases == {}
        self._check_gpus()
        await self._check_energy()

    async def _something_happens(self) -> None:
        happenings: list[tuple[float, Callable[[], Awaitable[None]]]] = [
            (0.02, self._someone_dies),
            (0.05, self._someone_connects_anew),
            (0.05, self._someone_subscribes),
            (0.02, self._the_power_controller_starts_again),
            (0.02, self._another_actor_sets_a_limit),
        ]
        for probability, happens in happenings:
            if self._chance.random() < probability:
                await happens()

    async def _someone_dies(self) -> None:
        if len(self._callers) == 2:
            return
        await self._dies(self._chance.choice(self._callers))
        self.counts["deaths"] += 1
        if self._identities.known_at_once:
            await self.fill(len(self._callers) + 1)

    async def _dies(self, caller: Caller) -> None:
        self._callers.remove(caller)
        caller.process.kill()
        caller.writer.close()
        owner = caller.who.owner
        self._dead.append(owner)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while any(lease.owner == owner for lease in self._model.leases.values()):
                await asyncio.sleep(0)
                self._follow({}, None)
        self._identities.buried(caller.who)

    async def _someone_connects_anew(self) -> None:
        caller = self._chance.choice(self._callers)
        caller.writer.close()
        caller.reader, caller.writer = await self._connected(caller.process)
        self.counts["connections"] += 1

    async def _someone_subscribes(self) -> None:
        caller = self._chance.choice(self._callers)
        reader, writer = await self._connected(caller.process)
        writer.write(b'{"verb": "subscribe", "interval_seconds": 0.02}\n')
        seen = {gpu for gpu in self._gpus if caller.who.sees(gpu)}
        for _ in range(2 if seen else 0):
            told = json.loads(await reader.readline())["result"]
            assert {each["uuid"] for each in told} == seen
        if not seen:
            assert json.loads(await reader.readline())["error"]["reason"] == "NotYours"
        writer.close()
        self.counts["subscriptions"] += 1

    async def _the_power_controller_starts_again(self) -> None:
        # Where clocks were moved to last is on disk half a second later: the tick's.
        await self._pass_time(0.5)
        self.node.restart_power_controller()
        self._check_gpus()
        self.counts["power controllers"] += 1

    async def _another_actor_sets_a_limit(self) -> None:
        gpu, watts = self._chance.choice(self._gpus), self._chance.choice(WATTS[:6])
        self._machine.set_power_limit_as_another_actor(gpu, watts)
        self._model.another_actor_sets(gpu, watts)
        self.counts["actors"] += 1

    async def _pass_time(self, seconds: float) -> None:
        self._machine.occupy(self._chance.choice(self._gpus), work=100.0 * seconds, intensity=self._chance.random())
        self._machine.idle(self._gpus, 0.0)
        self._follow({}, None)
        self.node.pass_time(seconds)
        self.counts["expiries"] += self._model.tick(self.node.now_seconds)

    async def _connected(self, process: CallerProcess) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_unix_connection(sock=process.connection(), limit=1 << 20)

    def _inject_fault(self, line: Line) -> Fault | None:
        request = line.request or {}
        gpus = request.get("gpus", self._gpus)
        setting = {"hold_limit": POWER, "hold_clocks": GRAPHICS}.get(request.get("verb", ""))
        setting = setting or self._chance.choice(list(SETS))
        verb = "Reset" if request.get("verb") == "release" and setting != POWER else "Set"
        gpu, code = self._chance.choice(gpus), self._chance.choice(list(CODES))
        if gpu not in self._gpus:
            return None
        self._machine.inject_fault(f"nvmlDevice{verb}{SETS[setting]}", code=code, gpu=gpu, count=1)
        self.counts["faults"] += 1
        return Fault(gpu, setting, CODES[code])

    def _follow(
        self, asking: dict[str, dict[str, Any]], fault: Fault | None
    ) -> tuple[dict[str, Any], list[set[tuple[object, ...]]]]:
        """The model does what the power controller did, in its order, and its answers must be the power controller's.

        Returns:
            By owner the power controller's answer to what it asked, and what was held whenever the
            power controller was asked for a list.
        """
        answered: dict[str, Any] = {}
        listed = []
        told, self.node.told = self.node.told, []
        for request, answer in told:
            if request["verb"] not in {"list", "heartbeat"}:
                self._lately.append((request, answer, fault))
            if request["verb"] in {"list", "heartbeat"}:
                leases = answer["result"]["leases"]
                held = {tuple(each[name] for name in LISTED) for each in leases if not each["releasing"]}
                assert held == self._model.listed(), f"{held ^ self._model.listed()}; last asked: {list(self._lately)}"
                listed.append(held)
                continue
            owner = request["owner"]
            asked = asking.get(owner)
            if asked is None:
                # The agent may look after one who died a moment after its last lease was over.
                assert request["verb"] == "release", f"nobody asked for {request}"
                assert owner in self._dead, f"nobody asked for {request}"
            else:
                assert {name: value for name, value in request.items() if name != "owner"} == asked
                answered[owner] = answer
            self._compare(request, answer, fault)
        return answered, listed

    def _compare(self, request: dict[str, Any], answer: dict[str, Any], fault: Fault | None) -> None:
        expected: object
        told: object = answer.get("result")
        try:
            if request["verb"] == "release":
                expected = self._model.release(request["owner"], request.get("gpus"), fault)
                told = {(each["uuid"], each["setting"]) for each in answer.get("result", ())}
            else:
                expected = self._model.hold(request, self.node.now_seconds, fault)
        except RefusedByModel as refused:
            expected, told = refused.reason, answer.get("error", {}).get("reason")
        assert told == expected, (request, answer, fault)
        if expected == "NotRestored":
            # Tried again until it works.
            self.node.lease_manager.tick()

    def _check(
        self, asking: list[Caller], lines: list[Line], answers: list[dict[str, Any]], fault: Fault | None
    ) -> None:
        by_owner = {
            each.who.owner: line.request for each, line in zip(asking, lines, strict=True) if line.request is not None
        }
        answered, listed = self._follow(by_owner, fault)
        for caller, line, answer in zip(asking, lines, answers, strict=True):
            reason = answer.get("error", {}).get("reason")
            if reason is not None:
                self.refusals[reason] += 1
            if line.request is None:
                assert reason == "BadRequest", (line, answer)
            elif (refusal := self._model.refusal_of_monitor(caller.who, line.request)) is not None:
                assert reason == refusal, (line, answer)
                assert caller.who.owner not in answered
            elif line.request["verb"] in {"energy", "gpus", "list"}:
                self._check_read(caller.who, line.request, answer["result"], listed, alone=len(asking) == 1)
            else:
                self._check_told(line.request, answer, answered[caller.who.owner])

    def _check_told(self, request: dict[str, Any], answer: dict[str, Any], power_controller: dict[str, Any]) -> None:
        """The caller hears what the power controller said."""
        if "error" in power_controller:
            assert answer == power_controller
            return
        told: Any = power_controller["result"]
        if request["verb"] == "release":
            assert set(answer["result"]) == {each["uuid"] for each in told}
        elif request["verb"] == "hold_clocks":
            assert answer["result"] == [{"uuid": each["uuid"], "held_megahertz": each["held"]} for each in told]
        else:
            names = {"uuid": "uuid", "found_watts": "found", "held_watts": "held", "enforced_watts": "enforced"}
            assert answer["result"] == [{name: each[theirs] for name, theirs in names.items()} for each in told]

    def _check_read(
        self, who: Identity, request: dict[str, Any], told: Any, listed: list[set[tuple[object, ...]]], *, alone: bool
    ) -> None:
        seen = [gpu for gpu in request.get("gpus", self._gpus) if who.sees(gpu)]
        if request["verb"] == "list":
            held = {tuple(each[name] for name in LISTED) for each in told}
            # For an owner that sees no GPU the power controller is not asked.
            seen_listed = [{each for each in leases if who.sees(str(each[0]))} for leases in listed]
            assert held in (seen_listed if any(map(who.sees, self._gpus)) else [set()])
            assert all(each["yours"] == (each["owner"] == who.owner) for each in told)
            return
        assert [each["uuid"] for each in told] == seen
        if request["verb"] == "energy":
            counters = {gpu.uuid: gpu.counter_millijoules for gpu in self._machine.describe().gpus}
            assert all(each["energy_millijoules"] == counters[each["uuid"]] for each in told)
        elif alone:
            for each in told:
                key = (each["uuid"], POWER)
                current = self._model.current[key]
                found = self._model.leases[key].found if key in self._model.leases else current
                limits = each["power_limits"]
                assert (limits["current_watts"], limits["found_watts"]) == (current, found)

    async def _check_energy(self) -> None:
        """No energy is lost: after the next look the ledger has all that the counters have counted."""
        counted = {uuid: counter - self._begin_millijoules[uuid] for uuid, counter in self._counters().items()}
        await self._until(lambda: self.node.booked_millijoules() == counted, f"the ledger has {counted}")

    async def _until(self, holds: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not holds():
            assert time.monotonic() < deadline, f"not within {PATIENCE_SECONDS:g} s: {what}"
            await asyncio.sleep(POLL_SECONDS)

    def _counters(self) -> dict[str, int]:
        return {gpu.uuid: gpu.counter_millijoules for gpu in self._machine.describe().gpus}

    def _check_gpus(self) -> None:
        """Every GPU is as the model says, whoever asked for what."""
        for gpu in self._machine.describe().gpus:
            wanted = {setting: self._model.current[gpu.uuid, setting] for setting in SETS}
            graphics, memory = gpu.locked_graphics_clocks_megahertz, gpu.locked_memory_clocks_megahertz
            truth = {POWER: gpu.power_limit_watts, GRAPHICS: graphics and graphics[0], MEMORY: memory and memory[0]}
            assert truth == wanted, (
                f"GPU {gpu.uuid} is {truth}, the model has {wanted}; last asked: {list(self._lately)}"
            )
