"""Fifty callers, random events, and the comparison of every answer with the model."""

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

TIMEOUT_SECONDS = 60.0
POLL_SECONDS = 0.002
# The ledger keeps 256 steps of each counter; its memory is constant after so many.
EDGES = 260
# Errors of NVML, and the agent's reasons for them.
CODES = {2: "OutOfRange", 3: "NotSupported", 4: "NotPermitted", 15: "GpuLost", 999: "DeviceFailed"}
LISTED = ("uuid", "setting", "found", "held", "owner")
SETS = {POWER: "PowerManagementLimit", GRAPHICS: "GpuLockedClocks", MEMORY: "MemoryLockedClocks"}


@dataclass
class Caller:
    """A process, its identity and one of its connections."""

    process: CallerProcess
    identity: Identity
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def ask(self, data: bytes) -> dict[str, Any]:
        self.writer.write(data + b"\n")
        async with asyncio.timeout(TIMEOUT_SECONDS):
            answer: dict[str, Any] = json.loads(await self.reader.readline())
        return answer


class CallerPool:
    """The callers of one node, and the events on it.

    Attributes:
        counts: The number of events of each kind.
        refusals: The number of refusals, by reason.
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
        self._recent: deque[object] = deque(maxlen=6)
        self.counts: Counter[str] = Counter()
        self.refusals: Counter[str] = Counter()

    async def start(self) -> None:
        """Have the agent serve and measure from now on."""
        await self.node.start()
        await self._until(lambda: len(self.node.ledger_millijoules()) == len(self._gpus), "all GPUs are looked at")
        booked = self.node.ledger_millijoules()
        self._begin_millijoules = {uuid: counter - booked[uuid] for uuid, counter in self._counters().items()}
        self.node.sample_every(POLL_SECONDS)
        for _ in range(EDGES):
            self._machine.idle(self._gpus, 1.0)
            await self._check_energy()
        self.node.sample_every(SAMPLE_SECONDS)

    async def fill(self, size: int) -> None:
        """Add callers up to this number."""
        spawned = [self._spawner.spawn() for _ in range(size - len(self._callers))]
        for process, identity in zip(spawned, await self._identities.identify(spawned) if spawned else (), strict=True):
            self._callers.append(Caller(process, identity, *await self._connected(process)))

    async def close(self) -> None:
        """Close all connections and end all callers."""
        for caller in self._callers:
            caller.writer.close()
            caller.process.control.close()
        self._callers.clear()
        await self.await_connections()
        await self.node.close()

    async def await_connections(self) -> None:
        """Wait until the agent has noticed all closed connections."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while self.node.server.connections != len(self._callers):
                await asyncio.sleep(0)

    async def burst(self, seconds_a_request: float) -> None:
        """Inject an event, send requests of some callers at the same time, and let time pass."""
        await self._inject_event()
        size = 1 if self._chance.random() < 0.9 else self._chance.randint(2, len(self._callers))
        asking = self._choose_callers(size)
        lines = [random_line(self._chance, self._gpus, self._likely_gpus(each.identity)) for each in asking]
        fault = self._inject_fault(lines[0]) if size == 1 and self._chance.random() < 0.2 else None
        answers = await asyncio.gather(*(each.ask(line.data) for each, line in zip(asking, lines, strict=True)))
        self._check(asking, lines, answers, fault)
        self._machine.clear_faults()
        self.counts["requests"] += size
        await self._pass_time(self._chance.expovariate(1 / (seconds_a_request * size)))
        self._check_gpus()

    def _choose_callers(self, size: int) -> list[Caller]:
        owners = [each for each in self._callers if each.identity.own]
        if size == 1 and owners and self._chance.random() < 0.8:
            return [self._chance.choice(owners)]
        return self._chance.sample(self._callers, size)

    def _likely_gpus(self, identity: Identity) -> list[str]:
        """The GPUs that it mostly requests: its own; on a laptop, those that no other owner holds."""
        if identity.own is not None:
            return sorted(identity.own | identity.shared)
        held_by_others = {gpu for (gpu, _), lease in self._model.leases.items() if lease.owner != identity.owner}
        return [gpu for gpu in self._gpus if gpu not in held_by_others]

    async def release_everything(self) -> None:
        """Release half of the leases, kill all callers, and check that every GPU is restored."""
        for number, caller in enumerate(list(self._callers)):
            if number % 2:
                line = Line({"verb": "release"}, b'{"verb": "release"}')
                self._check([caller], [line], [await caller.ask(line.data)], None)
            await self._kill(caller)
        assert self._model.leases == {}
        assert self.node.lease_manager.leases == {}
        self._check_gpus()
        await self._check_energy()

    async def _inject_event(self) -> None:
        events: list[tuple[float, Callable[[], Awaitable[None]]]] = [
            (0.02, self._kill_random_caller),
            (0.05, self._reconnect_caller),
            (0.05, self._subscribe_caller),
            (0.02, self._restart_power_controller),
            (0.02, self._set_limit_as_another_actor),
        ]
        for probability, event in events:
            if self._chance.random() < probability:
                await event()

    async def _kill_random_caller(self) -> None:
        if len(self._callers) == 2:
            return
        await self._kill(self._chance.choice(self._callers))
        self.counts["deaths"] += 1
        if self._identities.is_identified_at_once:
            await self.fill(len(self._callers) + 1)

    async def _kill(self, caller: Caller) -> None:
        self._callers.remove(caller)
        caller.process.kill()
        caller.writer.close()
        owner = caller.identity.owner
        self._dead.append(owner)
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while any(lease.owner == owner for lease in self._model.leases.values()):
                await asyncio.sleep(0)
                self._replay({}, None)
        self._identities.remove(caller.identity)

    async def _reconnect_caller(self) -> None:
        caller = self._chance.choice(self._callers)
        caller.writer.close()
        caller.reader, caller.writer = await self._connected(caller.process)
        self.counts["connections"] += 1

    async def _subscribe_caller(self) -> None:
        caller = self._chance.choice(self._callers)
        reader, writer = await self._connected(caller.process)
        writer.write(b'{"verb": "subscribe", "interval_seconds": 0.02}\n')
        seen = {gpu for gpu in self._gpus if caller.identity.sees(gpu)}
        for _ in range(2 if seen else 0):
            answered_result = json.loads(await reader.readline())["result"]
            assert {each["uuid"] for each in answered_result} == seen
        if not seen:
            assert json.loads(await reader.readline())["error"]["reason"] == "NotYours"
        writer.close()
        self.counts["subscriptions"] += 1

    async def _restart_power_controller(self) -> None:
        # The tick stores the last move of a clock within half a second.
        await self._pass_time(0.5)
        self.node.restart_power_controller()
        self._check_gpus()
        self.counts["power controllers"] += 1

    async def _set_limit_as_another_actor(self) -> None:
        gpu, watts = self._chance.choice(self._gpus), self._chance.choice(WATTS[:6])
        self._machine.set_power_limit_as_another_actor(gpu, watts)
        self._model.another_actor_sets(gpu, watts)
        self.counts["actors"] += 1

    async def _pass_time(self, seconds: float) -> None:
        self._machine.occupy(self._chance.choice(self._gpus), work=100.0 * seconds, intensity=self._chance.random())
        self._machine.idle(self._gpus, 0.0)
        self._replay({}, None)
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

    def _replay(
        self, asking: dict[str, dict[str, Any]], fault: Fault | None
    ) -> tuple[dict[str, Any], list[set[tuple[object, ...]]]]:
        """Replay the power controller's requests on the model, in order, and compare the answers.

        Returns:
            By owner, the power controller's answer to its request; and the leases at each list
            request.
        """
        answered: dict[str, Any] = {}
        listed = []
        exchanges, self.node.exchanges = self.node.exchanges, []
        for request, answer in exchanges:
            if request["verb"] not in {"list", "heartbeat"}:
                self._recent.append((request, answer, fault))
            if request["verb"] in {"list", "heartbeat"}:
                leases = answer["result"]["leases"]
                held = {tuple(each[name] for name in LISTED) for each in leases if not each["releasing"]}
                assert held == self._model.listed(), f"{held ^ self._model.listed()}; recent: {list(self._recent)}"
                listed.append(held)
                continue
            owner = request["owner"]
            forwarded = asking.get(owner)
            if forwarded is None:
                # The agent may release for an owner that died just after its last lease expired.
                assert request["verb"] == "release", f"unexpected request {request}"
                assert owner in self._dead, f"unexpected request {request}"
            else:
                assert {name: value for name, value in request.items() if name != "owner"} == forwarded
                answered[owner] = answer
            self._compare(request, answer, fault)
        return answered, listed

    def _compare(self, request: dict[str, Any], answer: dict[str, Any], fault: Fault | None) -> None:
        expected: object
        answered_result: object = answer.get("result")
        try:
            if request["verb"] == "release":
                expected = self._model.release(request["owner"], request.get("gpus"), fault)
                answered_result = {(each["uuid"], each["setting"]) for each in answer.get("result", ())}
            else:
                expected = self._model.hold(request, self.node.now_seconds, fault)
        except RefusedByModel as refused:
            expected, answered_result = refused.reason, answer.get("error", {}).get("reason")
        assert answered_result == expected, (request, answer, fault)
        if expected == "NotRestored":
            # The power controller retries until it works.
            self.node.lease_manager.tick()

    def _check(
        self, asking: list[Caller], lines: list[Line], answers: list[dict[str, Any]], fault: Fault | None
    ) -> None:
        by_owner = {
            each.identity.owner: line.request
            for each, line in zip(asking, lines, strict=True)
            if line.request is not None
        }
        answered, listed = self._replay(by_owner, fault)
        for caller, line, answer in zip(asking, lines, answers, strict=True):
            reason = answer.get("error", {}).get("reason")
            if reason is not None:
                self.refusals[reason] += 1
            if line.request is None:
                assert reason == "BadRequest", (line, answer)
            elif (refusal := self._model.refusal_of_monitor(caller.identity, line.request)) is not None:
                assert reason == refusal, (line, answer)
                assert caller.identity.owner not in answered
            elif line.request["verb"] in {"energy", "gpus", "list"}:
                self._check_read(caller.identity, line.request, answer["result"], listed, alone=len(asking) == 1)
            else:
                self._check_forwarded(line.request, answer, answered[caller.identity.owner])

    def _check_forwarded(
        self, request: dict[str, Any], answer: dict[str, Any], power_controller: dict[str, Any]
    ) -> None:
        """Check that the caller's answer matches the power controller's."""
        if "error" in power_controller:
            assert answer == power_controller
            return
        answered_result: Any = power_controller["result"]
        if request["verb"] == "release":
            assert set(answer["result"]) == {each["uuid"] for each in answered_result}
        elif request["verb"] == "hold_clocks":
            assert answer["result"] == [
                {"uuid": each["uuid"], "held_megahertz": each["held"]} for each in answered_result
            ]
        else:
            names = {"uuid": "uuid", "found_watts": "found", "held_watts": "held", "enforced_watts": "enforced"}
            assert answer["result"] == [
                {name: each[theirs] for name, theirs in names.items()} for each in answered_result
            ]

    def _check_read(
        self,
        identity: Identity,
        request: dict[str, Any],
        answered_result: Any,
        listed: list[set[tuple[object, ...]]],
        *,
        alone: bool,
    ) -> None:
        seen = [gpu for gpu in request.get("gpus", self._gpus) if identity.sees(gpu)]
        if request["verb"] == "list":
            held = {tuple(each[name] for name in LISTED) for each in answered_result}
            # An owner that sees no GPU costs the power controller no request.
            seen_listed = [{each for each in leases if identity.sees(str(each[0]))} for leases in listed]
            assert held in (seen_listed if any(map(identity.sees, self._gpus)) else [set()])
            assert all(each["yours"] == (each["owner"] == identity.owner) for each in answered_result)
            return
        assert [each["uuid"] for each in answered_result] == seen
        if request["verb"] == "energy":
            counters = {gpu.uuid: gpu.counter_millijoules for gpu in self._machine.describe().gpus}
            assert all(each["energy_millijoules"] == counters[each["uuid"]] for each in answered_result)
        elif alone:
            for each in answered_result:
                key = (each["uuid"], POWER)
                current = self._model.current[key]
                found = self._model.leases[key].found if key in self._model.leases else current
                limits = each["power_limits"]
                assert (limits["current_watts"], limits["found_watts"]) == (current, found)

    async def _check_energy(self) -> None:
        """Check that the ledger has all of the counters' energy after the next sample."""
        counted = {uuid: counter - self._begin_millijoules[uuid] for uuid, counter in self._counters().items()}
        await self._until(lambda: self.node.ledger_millijoules() == counted, f"the ledger has {counted}")

    async def _until(self, holds: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not holds():
            assert time.monotonic() < deadline, f"not within {TIMEOUT_SECONDS:g} s: {what}"
            await asyncio.sleep(POLL_SECONDS)

    def _counters(self) -> dict[str, int]:
        return {gpu.uuid: gpu.counter_millijoules for gpu in self._machine.describe().gpus}

    def _check_gpus(self) -> None:
        """Check that every GPU matches the model."""
        for gpu in self._machine.describe().gpus:
            wanted = {setting: self._model.current[gpu.uuid, setting] for setting in SETS}
            graphics, memory = gpu.locked_graphics_clocks_megahertz, gpu.locked_memory_clocks_megahertz
            actual = {POWER: gpu.power_limit_watts, GRAPHICS: graphics and graphics[0], MEMORY: memory and memory[0]}
            assert actual == wanted, f"GPU {gpu.uuid} is {actual}, the model has {wanted}; recent: {list(self._recent)}"
