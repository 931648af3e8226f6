"""The operator with many jobs: delay of the starts, memory, and each step of a recurrence.

Run from the repository's root, with the programs of the cluster tests (docs/internals/testing.md):

    python benchmarks/many_jobs.py --jobs 1000 --others 9000
    python benchmarks/many_jobs.py --jobs 1000 --kwok
    python benchmarks/many_jobs.py --jobs 0 --steps 100

The benchmark starts a separate control plane. The RecurringTrainingJobs have a cron schedule of the same minute, and
`--others` more have one of another hour. It measures the time from that minute to the creation of each Job, in whole
seconds of the server, the requests that the API server answered for each recurrence, the operator's memory, and the
time that a restarted operator takes to know all jobs. It compares with two peers on the same control plane: a bare
client that writes the same recurrences, statuses and Jobs as fast as the API server takes them, which is its own limit,
and Kubernetes' CronJob controller with as many CronJobs, of which it also has the controller's own metric. Jobs are
suspended, so there are no pods.

With `--kwok` they are not suspended. The real scheduler binds their pods to a node of the real kwok, which says that
each runs for `--training-seconds` and ends with a metric that reaches the target, by its termination message. Then
requests and starts are those of pods, too, and the benchmark has the times of the results.

With `--steps` further jobs run one recurrence after another on such a node, first without a queue, then as many through
the real Kueue, and the mean of each step is shown for both: the recurrence is created, its Job, Kueue's Workload of it,
the quota is reserved, the workload admitted and resumed, its pod runs and ends, the result is written, and the next
recurrence begins. Kueue, the Job controller and the scheduler have the limits of requests that they have by default.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[1]
sys.path.insert(0, str(REPOSITORY / "tests"))
# With `python -P` the folder of this file is not there. At the end, it hides no module.
sys.path.append(str(Path(__file__).parent))

from due_jobs import Load, compared, controllers_skew  # noqa: E402
from kubernetes import client, config  # noqa: E402
from kubernetes.dynamic import DynamicClient  # noqa: E402
from measured_operator import TERMINATION_MESSAGE, Cluster, say  # noqa: E402
from recurrence_steps import Rounds, remove_unqueued, steps  # noqa: E402

from support.binaries.build import USED_BY_TESTS, ensure  # noqa: E402
from support.control_plane.commands import ClusterCommand  # noqa: E402
from support.control_plane.control_plane import ControlPlane, running_control_plane  # noqa: E402
from support.control_plane.kueue_controller import kueue_controller  # noqa: E402
from support.control_plane.kwok_node import PlayedTraining, kwok_node  # noqa: E402
from support.free_ports import free_port  # noqa: E402


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """The values of the parts that the options choose."""
    programs = ensure(needed_programs(options))
    controllers_port, found = free_port(), {}
    with (
        tempfile.TemporaryDirectory(prefix="wattloop-benchmark-") as name,
        contextlib.ExitStack() as running,
    ):
        folder = Path(name)
        (folder / "plane").mkdir()
        plane = running.enter_context(
            running_control_plane(programs, folder / "plane", controllers_port=controllers_port)
        )
        cluster = running.enter_context(prepared_cluster(plane, folder))
        if "kwok" in programs:
            plane.start_scheduler()
            training = PlayedTraining(options.training_seconds, TERMINATION_MESSAGE)
            running.enter_context(kwok_node(programs["kwok"], cluster.kubectl, folder, training))
        if options.jobs:
            load = Load(options.jobs, options.others, options.workers, runs=options.kwok)
            found = compared(cluster, load) | {"cron_job_controller_own_skew": controllers_skew(controllers_port)}
        if options.steps:
            quota = options.quota or options.steps
            rounds = Rounds(options.steps, options.recurrences, quota, options.workers)
            found["steps"] = vars(rounds) | {"training_seconds": options.training_seconds}
            found["without_queue"] = steps(cluster, rounds, queued=False)
            remove_unqueued(plane)
            dynamic = DynamicClient(cluster.api)
            with kueue_controller(programs["kueue"], cluster.kubectl, dynamic, folder, clean_up=False):
                say("Kueue is ready")
                found["through_kueue"] = steps(cluster, rounds, queued=True)
        return found


def needed_programs(options: argparse.Namespace) -> list[str]:
    """The programs that the chosen parts run."""
    return [
        *USED_BY_TESTS,
        *(["kwok"] if options.kwok or options.steps else []),
        *(["kueue"] if options.steps else []),
    ]


@contextlib.contextmanager
def prepared_cluster(plane: ControlPlane, folder: Path) -> Iterator[Cluster]:
    """A context with a client of a control plane that has the definitions of Wattloop's kinds."""
    kubectl = ClusterCommand(plane.programs["kubectl"], plane.admin_kubeconfig, folder)
    kubectl("apply", "--server-side", f"--filename={REPOSITORY / 'crds'}")
    kubectl("wait", "--for=condition=Established", f"--filename={REPOSITORY / 'crds'}", "--timeout=60s")
    configuration = client.Configuration()
    config.load_kube_config(config_file=str(plane.admin_kubeconfig), client_configuration=configuration)
    configuration.connection_pool_maxsize = 16
    with client.ApiClient(configuration) as api:
        yield Cluster(api, kubectl, folder)


def main() -> int:
    """Measure and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--jobs", type=int, default=1000, help="number of jobs due at once; 0: not measured (default: 1000)"
    )
    parser.add_argument("--others", type=int, default=0, help="number of further jobs, not due then (default: 0)")
    parser.add_argument("--workers", type=int, default=8, help="the operator's --workers (default: 8)")
    parser.add_argument("--kwok", action="store_true", help="run the pods of the Jobs on a node of kwok")
    parser.add_argument(
        "--steps",
        type=int,
        default=0,
        metavar="JOBS",
        help="measure the steps of recurrences of as many jobs that run one after another on a node of kwok, without a "
        "queue and through Kueue (default: 0, not measured)",
    )
    parser.add_argument("--recurrences", type=int, default=3, help="with --steps: recurrences of each job (default: 3)")
    parser.add_argument(
        "--quota",
        type=int,
        default=0,
        help="with --steps: number of pods that the queue admits at a time (default: 0, as many as jobs, so that none "
        "waits for another)",
    )
    parser.add_argument(
        "--training-seconds", type=float, default=10.0, help="how long kwok says that a training runs (default: 10)"
    )
    sys.stdout.write(json.dumps(measure(parser.parse_args()), indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
