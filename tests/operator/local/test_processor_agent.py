"""A machine without a GPU: the energy of its processors by RAPL where it can be read, else the time alone."""

import subprocess
import sys
from pathlib import Path

import pytest

from support.local_runs.local_runs import LocalJob
from support.nvidia_driver import has_nvidia_driver
from wattloop.gpus.agent import AgentConnection, AgentRequestError
from wattloop_operator.history.cost_history import summary
from wattloop_operator.history.energy_origin import NOTES, REMEDIES, EnergyOrigin
from wattloop_operator.history.job_history import JobHistory
from wattloop_operator.history.rows import rows_of
from wattloop_operator.local.job_file import read_job
from wattloop_operator.local.local_run import LocalRun
from wattloop_operator.local.processor_agent import PROCESSORS, LocalProcessorMeter, running_processor_agent

# Zones of a machine with two packages; a core is a part of its package, memory is not, and psys contains all.
ZONES = {
    "intel-rapl:0": "package-0",
    "intel-rapl:0:0": "core",
    "intel-rapl:0:1": "dram",
    "intel-rapl:1": "package-1",
    "intel-rapl:2": "psys",
}
# Each epoch uses 30 J of the first package and 5 J of its memory.
SCRIPT = """
from pathlib import Path
for epoch in range(1, 5):
    for zone, joules in (("intel-rapl:0", 30), ("intel-rapl:0:1", 5)):
        counter = Path("rapl") / zone / "energy_uj"
        counter.write_text(str(int(counter.read_text()) + joules * 1_000_000))
    print(f"epoch={epoch} accuracy={epoch / 10}", flush=True)
"""


@pytest.fixture
def rapl(tmp_path: Path) -> Path:
    folder = tmp_path / "run" / "rapl"
    for zone, name in ZONES.items():
        (folder / zone).mkdir(parents=True)
        (folder / zone / "name").write_text(f"{name}\n")
        (folder / zone / "energy_uj").write_text("1000000\n")
        (folder / zone / "max_energy_range_uj").write_text("262143328850\n")
        (folder / zone / "constraint_0_power_limit_uw").write_text("65000000\n")
    return folder


def use(rapl: Path, zone: str, joules: int) -> None:
    counter = rapl / zone / "energy_uj"
    counter.write_text(str(int(counter.read_text()) + joules * 1_000_000))


def test_the_processors_are_one_device_with_the_energy_of_packages_and_memory(rapl: Path, tmp_path: Path) -> None:
    meter = LocalProcessorMeter(rapl)
    with running_processor_agent(tmp_path / "agent.sock", meter), AgentConnection(tmp_path / "agent.sock") as agent:
        (device,) = agent.gpus()
        assert (device.uuid, device.name) == (PROCESSORS, "processors")
        assert device.power_limits.maximum_watts == 130.0
        for zone, joules in (("intel-rapl:0", 10), ("intel-rapl:0:0", 7), ("intel-rapl:0:1", 2), ("intel-rapl:2", 99)):
            use(rapl, zone, joules)
        (reading,) = agent.energy([PROCESSORS])
        assert reading.energy_millijoules == 12_000
        with pytest.raises(AgentRequestError, match="this machine has no GPU"):
            agent.hold_limit([PROCESSORS], 100.0)
        assert agent.leases() == []


def test_without_a_readable_counter_the_time_alone_is_known(tmp_path: Path) -> None:
    meter = LocalProcessorMeter(tmp_path / "none")
    assert not meter.is_readable
    readings = [meter.reading() for _ in range(2)]
    assert [each.energy_millijoules for each in readings] == [0, 0]
    assert readings[1].clock_seconds > readings[0].clock_seconds
    assert meter.description().power_limits is None


@pytest.mark.processes
@pytest.mark.parametrize("readable", [True, False])
def test_a_run_on_a_machine_without_a_gpu_measures_what_it_can_and_says_so(
    rapl: Path, tmp_path: Path, *, readable: bool
) -> None:
    local_job = LocalJob(tmp_path / "run")
    manifest = local_job.job(SCRIPT, reporting={"source": "Logs"})
    meter = LocalProcessorMeter(rapl if readable else tmp_path / "none")
    run = LocalRun(source=manifest, job=read_job(manifest), output=local_job.output, recurrences=2, processors=meter)
    snapshot = run.carry_out(lambda _: None)
    history = JobHistory.of_snapshot(snapshot)
    rows = rows_of(history)
    assert [row.outcome for row in rows] == ["reached"] * 2
    assert all(row.time_seconds > 0 for row in rows)
    origin = EnergyOrigin.PROCESSOR if readable else EnergyOrigin.UNKNOWN
    assert [row.energy_origin for row in rows] == [origin] * 2
    assert NOTES[origin] in summary(history)
    if readable:
        assert [row.energy_joules for row in rows] == pytest.approx([140.0] * 2, abs=36.0)
        assert all(row.cost_joules for row in rows)
    else:
        messages = [each.status.message for each in snapshot.recurrences]
        assert all("this machine has no GPU" in each and "its GPU" not in each for each in messages), messages
        assert [row.cost_joules for row in rows] == [None] * 2
        assert REMEDIES[EnergyOrigin.UNKNOWN] in summary(history)


@pytest.mark.processes
@pytest.mark.usefixtures("rapl")
def test_the_command_simulates_no_gpu_by_itself_and_says_once_that_there_is_none(tmp_path: Path) -> None:
    if has_nvidia_driver():
        pytest.skip("this machine has an NVIDIA driver")
    local_job = LocalJob(tmp_path / "run")
    manifest = local_job.job(SCRIPT, reporting={"source": "Logs"})
    program = "import sys; from wattloop.commands.main import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", program, "run", str(manifest), "--output", str(local_job.output)]
    command += ["--recurrences", "1", "--no-plots"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.stderr.startswith("no GPU")
    assert " reached " in ended.stdout
    assert ended.stderr.count(ended.stderr.splitlines()[0]) == 1
    assert "no readable RAPL counter" not in ended.stdout
    assert not (local_job.output / "simulated-gpus").exists()
