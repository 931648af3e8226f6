"""Distributed trainings with gloo in the local mode: stops at any epoch, and kills of any process.

All ranks end after the same epoch, no attempt hangs, the limits of all GPUs are restored, and the energy of all
ranks is that of the simulated GPUs.
"""

import json
import time
from dataclasses import asdict, dataclass, field
from typing import Any

import pytest

import nvml_simulator
from support.agents.processes import children_of, program_of
from support.free_ports import free_port
from support.local_runs.local_runs import LocalJob, RunProcess, descendants_of, kill, wait_for_end
from support.test_sets.parameters import exhaustive_after

pytestmark = [pytest.mark.integrations, pytest.mark.timeout(900)]

RANKS = 4
MAX_EPOCHS = 6
DEFAULT_WATTS, HELD_WATTS = 400.0, 250.0
# The counters of a simulated GPU advance every 100 ms. Each reading may be one such step late, and is rounded to mJ.
STEP_JOULES = 0.1 * DEFAULT_WATTS + 0.001
WAIT_SECONDS = 300.0
# The shortest that a job may have.
DEADLINE_SECONDS = 60


@dataclass(frozen=True)
class Plan:
    """What the attempts of a run do, one after another; later ones repeat the last entry of a list.

    Attributes:
        group: Whether the ranks train one model in a process group.
        end: The epoch in which rank 0 reaches the target; negative: in which it diverges.
        killed: Rank and epoch in which it is killed before it reports; None: no rank.
        signal: The signal that ends it.
        pause: The epoch after whose report all ranks wait for the file `continue`; None: they do not.
    """

    end: list[int]
    group: list[bool] = field(default_factory=lambda: [True])
    killed: list[tuple[int, int] | None] = field(default_factory=lambda: [None])
    signal: int = 9
    pause: int | None = None


# The ranks are forked, which saves three imports of PyTorch, and of its compiler, which DistributedDataParallel
# imports. Only rank 0 evaluates. Each rank writes how many epochs it ran and what it knows.
TRAINING = """
import json, math, os, sys, threading, time
import nvml_simulator
import wattloop
from wattloop.wire.training_messages import Report
from wattloop.run.report_channel import ReportChannel

PLAN = json.loads(os.environ["PLAN"])
RANKS, PORT = PLAN["ranks"], PLAN["port"]
ATTEMPT = int(open("count").read()) + 1 if os.path.exists("count") else 0
with open("count", "w") as stream:
    stream.write(str(ATTEMPT))

def of_attempt(name):
    return PLAN[name][min(ATTEMPT, len(PLAN[name]) - 1)]

def report_until(imported):
    # On a busy machine the import of PyTorch takes longer than the progress deadline.
    channel = ReportChannel(os.environ["WATTLOOP_REPORT_URL"], os.environ["WATTLOOP_TOKEN_FILE"])
    while not imported.wait(10):
        channel.send(Report(process="p", sequence=0, epoch=0.0, ranks=RANKS))

GROUP = of_attempt("group")
if GROUP:
    imported = threading.Event()
    reporting = threading.Thread(target=report_until, args=(imported,))
    reporting.start()
    import torch
    import torch._dynamo
    import torch.distributed as dist
    imported.set()
    reporting.join()

def training_step():
    if not GROUP:
        return lambda: None
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    def step():
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
    return step

def train(rank):
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(RANKS), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(RANKS)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(PORT)}
    step, end, epochs = training_step(), of_attempt("end"), 0
    with wattloop.Run() as run:
        for epoch in run.epochs():
            for _ in range(2):
                step()
                nvml_simulator.occupy(rank, work=3000.0, intensity=0.8)
                run.step()
            epochs += 1
            # All ranks come here before one reports. Heartbeats have whole seconds, and the next one is a later second.
            step()
            second = int(time.time())
            while PLAN["signal"] != 9 and int(time.time()) == second:
                time.sleep(0.01)
            if [rank, epochs] == of_attempt("killed"):
                os.kill(os.getpid(), PLAN["signal"])
            metric = 0.0
            if rank == 0:
                metric = (0.9 if end > 0 else math.nan) if epochs == abs(end) else 0.1
            run.report(metric=metric)
            if epochs == PLAN["pause"] and ATTEMPT == 0:
                open(f"paused-{rank}", "w").close()
                while not os.path.exists("continue"):
                    time.sleep(0.01)
        with open(f"epochs-{ATTEMPT}-{rank}", "w") as stream:
            json.dump([epochs, run.reached, run.stopped], stream)
    if GROUP:
        dist.destroy_process_group()

children = []
for rank in range(RANKS):
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            train(rank)
            code = 0
        except BaseException:
            import traceback
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    children.append(pid)
codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
sys.exit(max(map(abs, codes)))
"""


def write_job(local_job: LocalJob, plan: Plan, progress_deadline_seconds: int | None = None) -> list[str]:
    """Write the job of a plan; returns the options of its run."""
    container = {
        "name": "train",
        "image": "none",
        "command": ["python", "train.py"],
        "env": [{"name": "PLAN", "value": json.dumps({"ranks": RANKS, "port": free_port(), **asdict(plan)})}],
    }
    deadline = {"progressDeadlineSeconds": progress_deadline_seconds} if progress_deadline_seconds else {}
    recurrences = max(len(plan.end), len(plan.killed))
    local_job.job(
        TRAINING,
        template={"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}},
        objective={"target": {"metric": "accuracy", "threshold": "0.4"}, "maxEpochs": MAX_EPOCHS},
        batchSize={"default": 32, "candidates": [32]},
        power={"mode": "Fixed", "watts": round(HELD_WATTS)},
        # With several recurrences, each has one attempt.
        **({"retries": 0} if recurrences > 1 else {}),
        **deadline,
    )
    return ["--recurrences", str(recurrences), "--simulated-gpus", str(RANKS)]


def last_epochs(local_job: LocalJob, attempt: int) -> list[Any]:
    return [json.loads((local_job.folder / f"epochs-{attempt}-{rank}").read_text()) for rank in range(RANKS)]


def outcomes(local_job: LocalJob) -> list[str]:
    return [row["outcome"] for row in local_job.rows()]


def reported_joules(local_job: LocalJob) -> list[float]:
    return [float(row["energy_joules"]) for row in local_job.rows()]


def used_joules(local_job: LocalJob) -> float:
    """What the simulated GPUs have used since the run began, exactly."""
    gpus = nvml_simulator.describe(local_job.output / "simulated-gpus").gpus
    return sum(gpu.energy_microjoules for gpu in gpus) / 1e6


def assert_all_energy_is_counted(local_job: LocalJob) -> None:
    attempts = reported_joules(local_job)
    assert sum(attempts) == pytest.approx(used_joules(local_job), abs=2 * RANKS * STEP_JOULES * len(attempts), rel=0)
    assert local_job.limits() == [DEFAULT_WATTS] * RANKS


# An epoch with and one without a group. Then the first epoch, one between, and the last one, which ends the run in any
# case; without a group, each one.
@pytest.mark.parametrize(
    "plan",
    exhaustive_after(
        [
            Plan([-2, 3], group=[True, False]),
            Plan([-1, -3, MAX_EPOCHS]),
            Plan([-1, -2, -3, -4, -5, -MAX_EPOCHS, 1], group=[False]),
        ]
    ),
)
def test_all_ranks_end_after_the_epoch_in_which_rank_0_reaches_or_diverges(local_job: LocalJob, plan: Plan) -> None:
    local_job.run(*write_job(local_job, plan))
    for attempt, epoch in enumerate(plan.end):
        assert last_epochs(local_job, attempt) == [[abs(epoch), epoch > 0, epoch < 0]] * RANKS
    assert outcomes(local_job) == ["reached" if epoch > 0 else "diverged" for epoch in plan.end]
    assert_all_energy_is_counted(local_job)


@pytest.mark.parametrize(
    "plan",
    exhaustive_after(
        [Plan([3], group=[True, False], killed=[(0, 2), None]), Plan([MAX_EPOCHS], killed=[(2, 1), (1, 3), None])]
    ),
)
def test_no_rank_hangs_when_another_is_killed(
    local_job: LocalJob, capfd: pytest.CaptureFixture[str], plan: Plan
) -> None:
    local_job.run(*write_job(local_job, plan))
    killed = [each[0] for each in plan.killed if each is not None]
    assert outcomes(local_job) == ["crashed"] * len(killed) + ["reached"]
    errors = capfd.readouterr().err
    for rank in killed:
        assert f"rank {rank} of {RANKS} ended without a report" in errors
    assert_all_energy_is_counted(local_job)


# Of the shortest deadline that a job may have. tests/node/test_outcomes.py has a hung training in the usual set.
@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("plan", "silent"),
    [
        # A rank that does not answer stops the others in their next step.
        (Plan([3], group=[True, False], killed=[(2, 2), None], signal=19), 2),
        # Nothing connects these ranks but the verdict, for which they wait.
        (Plan([3], killed=[(0, 2), None], signal=19, group=[False]), 0),
    ],
)
def test_an_attempt_with_a_rank_that_stops_is_hung_and_the_next_one_reaches(
    local_job: LocalJob, capfd: pytest.CaptureFixture[str], plan: Plan, silent: int
) -> None:
    local_job.run(*write_job(local_job, plan, DEADLINE_SECONDS))
    assert outcomes(local_job) == ["hung", "reached"]
    assert f"rank {silent} is silent longest" in capfd.readouterr().err
    assert_all_energy_is_counted(local_job)


def started_and_paused(local_job: LocalJob, plan: Plan) -> RunProcess:
    """A run whose ranks have all reported the epoch of the pause, and wait."""
    run = local_job.start(*write_job(local_job, plan))
    deadline = time.monotonic() + WAIT_SECONDS
    while not all((local_job.folder / f"paused-{rank}").exists() for rank in range(RANKS)):
        assert not run.wait_for_end(0.05), run.stderr.read_text()
        assert time.monotonic() < deadline, "the ranks do not come to the pause"
    return run


@pytest.mark.parametrize("group", exhaustive_after([False, True]))
def test_the_kill_of_the_agent_changes_neither_the_verdicts_nor_the_energy(local_job: LocalJob, group: bool) -> None:
    run = started_and_paused(local_job, Plan([4], group=[group], pause=2))
    (agent,) = [child for child in children_of(run.pid) if "wattloop_agent" in program_of(child)]
    kill(agent)
    (local_job.folder / "continue").touch()
    assert run.wait_for_end(WAIT_SECONDS)
    assert run.code == 0, run.stderr.read_text()
    assert last_epochs(local_job, 0) == [[4, True, False]] * RANKS
    assert outcomes(local_job) == ["reached"]
    assert_all_energy_is_counted(local_job)


@pytest.mark.parametrize("group", exhaustive_after([False, True]))
def test_a_run_that_is_killed_leaves_no_rank_and_no_limit_and_resumes(local_job: LocalJob, group: bool) -> None:
    plan = Plan([4], group=[group], pause=2)
    run = started_and_paused(local_job, plan)
    assert local_job.limits() == [HELD_WATTS] * RANKS
    processes = list(descendants_of(run.pid))
    kill(run.pid)
    run.ended()
    wait_for_end(processes)
    assert local_job.limits() == [DEFAULT_WATTS] * RANKS
    used = used_joules(local_job)
    # The next run simulates other GPUs.
    assert local_job.run(*write_job(local_job, plan)) == 0
    assert outcomes(local_job) == ["disrupted", "reached"]
    assert last_epochs(local_job, 1) == [[4, True, False]] * RANKS
    disrupted, reached = reported_joules(local_job)
    bound = 2 * RANKS * STEP_JOULES
    assert disrupted == pytest.approx(used, abs=bound, rel=0)
    assert reached == pytest.approx(used_joules(local_job), abs=bound, rel=0)
