"""Which connections get a slot, and which one closes when slots run out."""

import json
import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattloop_agent.monitor.connection_slots import (
    DESCRIPTORS_PER_CONNECTION,
    MAX_CONNECTIONS,
    MAX_CONNECTIONS_PER_GPU_OWNER,
    MAX_CONNECTIONS_WITHOUT_GPUS,
    MAX_SUBSCRIPTIONS,
    MAX_SUBSCRIPTIONS_PER_OWNER,
    RESERVED_DESCRIPTORS,
    WANTED_DESCRIPTORS,
    ConnectionSlot,
    ConnectionSlots,
    connections_allowed,
)
from wattloop_agent.refusals import Reason, RequestError

LIMIT = 512
TRAINER = "pod:trainer"


class Clients:
    """Connections with their slots; `closed` has those that lost theirs."""

    def __init__(self, limit: int = LIMIT) -> None:
        self.slots = ConnectionSlots(limit)
        self.closed: list[str] = []

    def connect(self, owner: str, has_gpus: bool | None, idle_seconds: float | None = None) -> ConnectionSlot | None:
        """None: refused; an owner of None GPUs is not identified."""
        try:
            slot = self.slots.acquire(owner, lambda why: self.closed.append(f"{owner}: {why}"))
        except RequestError as refused:
            return self._refused(refused)
        if has_gpus is not None:
            try:
                self.slots.identify(slot, has_gpus)
            except RequestError as refused:
                self.slots.release(slot)
                return self._refused(refused)
        slot.idle_seconds = idle_seconds
        return slot

    def _refused(self, refused: RequestError) -> None:
        assert refused.reason is Reason.TOO_MANY


def test_an_owner_without_gpus_gets_few_slots_and_all_such_owners_a_quarter() -> None:
    clients = Clients()
    taken = [clients.connect("pod:a", has_gpus=False) for _ in range(10)]
    assert sum(slot is not None for slot in taken) == MAX_CONNECTIONS_WITHOUT_GPUS
    busy = [clients.connect(f"pod:{number}", has_gpus=False) for number in range(LIMIT)]
    assert sum(slot is not None for slot in busy) == LIMIT // 4 - MAX_CONNECTIONS_WITHOUT_GPUS
    assert clients.closed == []
    assert clients.connect(TRAINER, has_gpus=True) is not None


def test_an_owner_with_gpus_gets_more_slots_but_not_all() -> None:
    clients = Clients()
    taken = [clients.connect(TRAINER, has_gpus=True) for _ in range(LIMIT)]
    assert sum(slot is not None for slot in taken) == MAX_CONNECTIONS_PER_GPU_OWNER


def test_the_longest_idle_connection_closes_first_starting_with_owners_without_gpus() -> None:
    clients = Clients(limit=16)
    clients.connect("pod:old", has_gpus=True, idle_seconds=1.0)
    clients.connect("pod:without", has_gpus=False, idle_seconds=9.0)
    for number in range(10):
        clients.connect(f"pod:{number % 5}", has_gpus=True, idle_seconds=2.0 + number)
    assert clients.closed == []
    for _ in range(3):
        assert clients.connect(TRAINER, has_gpus=True) is not None
    assert [message.partition(": ")[0] for message in clients.closed] == ["pod:without", "pod:0", "pod:1"]
    assert "idle" in clients.closed[0]


def test_an_owner_with_gpus_gets_a_slot_even_if_all_others_are_busy() -> None:
    clients = Clients()
    busy = [clients.connect(f"pod:{number % 20}", has_gpus=True) for number in range(20 * 32)]
    assert None in busy, "all slots are taken"
    assert clients.connect(TRAINER, has_gpus=True) is not None
    assert len(clients.closed) == 1
    assert "has 32 connections open" in clients.closed[0] or "has 23 connections open" in clients.closed[0]
    assert clients.connect(TRAINER, has_gpus=True) is None, "the second has to wait until one is idle"


def test_unidentified_connections_take_no_slots_from_identified_ones() -> None:
    clients = Clients()
    for number in range(LIMIT):
        clients.connect(f"pod:{number % 4}", has_gpus=None)
    waiting = LIMIT // 8
    assert len(clients.slots) == waiting
    newcomer = clients.connect(TRAINER, has_gpus=None)
    assert newcomer is not None, "one of the greediest owner's goes"
    assert len(clients.slots) == waiting
    clients.slots.identify(newcomer, True)
    assert clients.connect("pod:more", has_gpus=True) is not None


def subscribe(clients: Clients, owner: str) -> bool:
    slot = clients.connect(owner, has_gpus=True)
    assert slot is not None
    try:
        clients.slots.subscribe(slot)
    except RequestError:
        return False
    return True


def test_the_first_subscription_of_each_owner_gets_a_slot() -> None:
    clients = Clients()

    greedy = Counter(owner for owner in [f"pod:{number}" for number in range(8)] * 20 if subscribe(clients, owner))
    assert set(greedy.values()) == {MAX_SUBSCRIPTIONS // 2 // 8}
    assert subscribe(clients, TRAINER)
    assert not subscribe(clients, TRAINER)
    alone = Clients()
    assert sum(subscribe(alone, TRAINER) for _ in range(20)) == MAX_SUBSCRIPTIONS_PER_OWNER


@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.sampled_from([None, True, False]), st.booleans(), st.booleans()), max_size=120
    ),
    st.sampled_from([16, 40, 512]),
)
def test_no_limit_is_ever_exceeded_and_every_owner_with_gpus_can_connect(
    steps: list[tuple[int, bool | None, bool, bool]], limit: int
) -> None:
    clients = Clients(limit)
    taken: list[ConnectionSlot] = []
    for number, has_gpus, is_idle, leaves in steps:
        # An owner's GPUs do not change between connections.
        known = None if has_gpus is None else number % 2 == 0
        slot = clients.connect(f"pod:{number}", known, idle_seconds=float(number) if is_idle else None)
        if slot is not None:
            taken.append(slot)
        if leaves and taken:
            clients.slots.release(taken.pop())
        assert len(clients.slots) <= limit
    have = {slot.owner for slot in clients.slots._slots}
    for number in range(0, 10, 2):
        if f"pod:{number}" not in have and limit > 16:
            assert clients.connect(f"pod:{number}", has_gpus=True) is not None


@pytest.mark.parametrize("limit", [16, 64, 512])
def test_every_group_has_slots_with_any_limit(limit: int) -> None:
    clients = Clients(limit)
    assert clients.connect("pod:new", has_gpus=None) is not None
    assert clients.connect("pod:without", has_gpus=False) is not None
    assert clients.connect(TRAINER, has_gpus=True) is not None


SCRIPT = """
import json, resource, sys
from wattloop_agent.monitor.connection_slots import allowed_connections
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[2])))
print(json.dumps([allowed_connections(), *resource.getrlimit(resource.RLIMIT_NOFILE)]))
"""


def limited(soft: int, hard: int) -> tuple[list[int], str]:
    """The connections allowed, the soft and the hard limit afterwards; what was logged."""
    command = [sys.executable, "-c", SCRIPT, str(soft), str(hard)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout), done.stderr


def test_the_default_soft_limit_is_raised_to_what_all_connections_need() -> None:
    assert limited(1024, 4096) == ([MAX_CONNECTIONS, WANTED_DESCRIPTORS, 4096], "")


def test_a_sufficient_limit_is_unchanged() -> None:
    assert limited(4096, 4096) == ([MAX_CONNECTIONS, 4096, 4096], "")


def test_a_low_hard_limit_means_fewer_connections_and_is_logged() -> None:
    (connections, soft, hard), logged = limited(256, 512)
    assert (connections, soft, hard) == (128, 512, 512)
    assert "RLIMIT_NOFILE" in logged


@pytest.mark.parametrize("limit", [0, 256, 300, 1024, 1280, 1_000_000])
def test_descriptors_are_reserved_for_the_agents_own_files(limit: int) -> None:
    connections = connections_allowed(limit)
    assert 16 <= connections <= MAX_CONNECTIONS
    if connections > 16:
        assert DESCRIPTORS_PER_CONNECTION * connections + RESERVED_DESCRIPTORS <= limit
