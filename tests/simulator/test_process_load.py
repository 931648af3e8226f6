"""A load on behalf of a process: the GPUs are busy for its share of the time, at the speed of their power limit."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nvml_simulator import Machine, create
from nvml_simulator.process_load import ProcessLoad, busy_share, processor_seconds_of
from wattloop.errors import UsageError

PROCESS = 42
IDLE_WATTS, BUSY_WATTS = 55.0, 321.24


class Clocks:
    """The time, and the processor time of the process; None once it has ended."""

    def __init__(self) -> None:
        self.now = 100.0
        self.used: float | None = 7.0

    def pass_time(self, seconds: float, used: float = 0.0) -> None:
        self.now += seconds
        if self.used is not None:
            self.used += used


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    state = create(tmp_path / "gpus", model="A100", count=2, clock="virtual", permission="anyone")
    with Machine(state) as opened:
        yield opened


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


def load_of(machine: Machine, clocks: Clocks, busy: float | None) -> ProcessLoad:
    return ProcessLoad(machine, busy, seconds=lambda: clocks.now, processor_seconds=lambda _: clocks.used)


def joules(machine: Machine, gpu: int = 0) -> float:
    return machine.describe().gpus[gpu].energy_microjoules / 1e6


def test_gpus_are_busy_for_the_share_and_idle_for_the_rest(machine: Machine, clocks: Clocks) -> None:
    load = load_of(machine, clocks, 0.25)
    load.follow(PROCESS)
    for _ in range(40):
        clocks.pass_time(0.5)
        load.advance()
    assert machine.clock_seconds(0) == machine.clock_seconds(1) == pytest.approx(20.0, abs=0.01)
    assert joules(machine) == pytest.approx(15 * IDLE_WATTS + 5 * BUSY_WATTS, rel=0.001)
    assert joules(machine, 1) == pytest.approx(joules(machine, 0), rel=1e-6)


def test_the_same_work_takes_longer_at_a_lower_power_limit(machine: Machine, clocks: Clocks) -> None:
    machine.set_power_limit_as_another_actor(0, 200.0)
    machine.set_power_limit_as_another_actor(1, 200.0)
    load = load_of(machine, clocks, 1.0)
    load.follow(PROCESS)
    clocks.pass_time(10.0)
    load.advance()
    assert machine.clock_seconds(0) > 11.0
    assert joules(machine) / machine.clock_seconds(0) == pytest.approx(200.0, rel=0.05)


def test_gpus_are_busy_as_long_as_the_process_uses_a_processor(machine: Machine, clocks: Clocks) -> None:
    load = load_of(machine, clocks, None)
    load.follow(PROCESS)
    # What it used before it was followed does not count, and four threads keep a GPU no busier than one.
    clocks.pass_time(10.0, used=2.0)
    load.advance()
    computing = joules(machine)
    assert computing == pytest.approx(8 * IDLE_WATTS + 2 * BUSY_WATTS, rel=0.001)
    clocks.pass_time(10.0)
    load.advance()
    assert joules(machine) - computing == pytest.approx(10 * IDLE_WATTS, rel=0.001)
    clocks.pass_time(1.0, used=4.0)
    load.advance()
    assert machine.clock_seconds(0) == pytest.approx(21.0, abs=0.01)


def test_nothing_happens_before_a_process_and_after_its_end(machine: Machine, clocks: Clocks) -> None:
    load = load_of(machine, clocks, 1.0)
    clocks.pass_time(5.0)
    load.follow(PROCESS)
    load.advance()
    assert machine.clock_seconds() == 0.0
    clocks.used = None
    clocks.pass_time(0.05)
    load.advance()
    assert not load.follows


def test_the_processor_time_of_a_process_has_that_of_its_descendants() -> None:
    spin = "import time\nwhile time.process_time() < 0.3: pass\n"
    script = (
        f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {spin!r}])\nprint('done', flush=True)\ninput()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "done\n"
        used = processor_seconds_of(process.pid)
        process.communicate("\n")
    assert used >= 0.29
    assert processor_seconds_of(process.pid) is None


def test_the_program_follows_the_processes_on_its_standard_input(tmp_path: Path) -> None:
    state = create(tmp_path / "gpus", model="A100", count=1, clock="virtual", permission="anyone")
    with (
        subprocess.Popen(
            [sys.executable, "-m", "nvml_simulator.process_load", str(state), "1.0"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as program,
        Machine(state) as machine,
    ):
        assert program.stdout.readline() == "ready\n"
        program.stdin.write(f"{os.getpid()}\n")
        program.stdin.flush()
        while machine.clock_seconds() < 0.2:
            os.sched_yield()
        program.stdin.close()
        assert program.wait() == 0
        assert joules(machine) / machine.clock_seconds() > 2 * IDLE_WATTS


@pytest.mark.parametrize("text", ["1.5", "-0.1", "gpu", "nan", ""])
def test_an_invalid_share_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"expected cpu, or a share from 0 to 1"):
        busy_share(text)
