"""`wattloop run`: runs a job's recurrences on this machine, from one manifest."""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from wattloop.commands.contract import Command
from wattloop.commands.main import EXIT_FAILURE, EXIT_INTERRUPTED
from wattloop.commands.output import console
from wattloop.errors import UsageError
from wattloop.interruption import Interrupted
from wattloop_operator.command_line.gpu_options import (
    add_gpu_options,
    non_negative_integer,
    positive_integer,
    simulation_of,
)
from wattloop_operator.local.local_gpus import Simulation, has_driver

if TYPE_CHECKING:
    from rich.console import Console

    from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
    from wattloop_operator.domain.snapshot import Snapshot
    from wattloop_operator.history.job_history import JobHistory
    from wattloop_operator.local.display import AttemptReporter
    from wattloop_operator.local.local_run import LocalRun
    from wattloop_operator.local.processor_agent import LocalProcessorMeter


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="manifest that contains one RecurringTrainingJob")
    parser.add_argument(
        "--recurrences",
        type=positive_integer,
        metavar="N",
        help="run N recurrences one after another, instead of by the job's schedule (default: the schedule; "
        "without one, maxRecurrences of the job, or 1)",
    )
    add_gpu_options(parser)
    parser.add_argument(
        "--database",
        metavar="DATABASE",
        help="a file or a URL (default: wattloop.db, a SQLite file in the output folder)",
    )
    parser.add_argument(
        "--output", type=Path, metavar="DIR", help="output folder (default: wattloop-output/<name of the job>)"
    )
    parser.add_argument(
        "--seed", type=non_negative_integer, default=0, metavar="S", help="seed of all random draws (default: 0)"
    )
    parser.add_argument(
        "--tariff",
        type=Path,
        metavar="FILE",
        help="price and carbon intensity of electricity, for savings in money; YAML such as {currency: EUR, "
        "perKilowattHour: 0.25, gramsPerKilowattHour: 380}, which the output folder remembers",
    )
    parser.add_argument(
        "--no-plots",
        dest="plots",
        action="store_false",
        help="draw no cost.png and tradeoff.png, which wattloop plot --database makes later",
    )
    parser.add_argument(
        "--format",
        choices=("table", "jsonl"),
        default="table",
        help="table: a live table (default); jsonl: one JSON object on stdout for each ended attempt",
    )


def _run(arguments: argparse.Namespace) -> int:

    from wattloop_operator.domain.tariff import read_tariffs
    from wattloop_operator.history.cost_history import summary
    from wattloop_operator.history.job_history import JobHistory
    from wattloop_operator.local.display import AttemptReporter
    from wattloop_operator.local.job_file import read_job, recurrences_of
    from wattloop_operator.local.local_run import LocalRun
    from wattloop_operator.reconcile.job.target import unreachable_message

    job = read_job(arguments.file)
    output = arguments.output or Path("wattloop-output") / job.metadata.name
    stderr = console(stderr=True, soft_wrap=True)

    readings: list[str] = []

    def show_reading(reading: str) -> None:
        if not readings:
            stderr.print(f"The first evaluation: {reading}")
            readings.append(reading)

    simulation = _with_time(simulation_of(arguments, job, else_processors=True), job)
    processors, origin_advice = _processors() if simulation is None and not has_driver() else (None, "")
    local_run = LocalRun(
        source=arguments.file,
        job=job,
        output=output,
        database=arguments.database,
        recurrences=recurrences_of(job, arguments.recurrences),
        simulation=simulation,
        processors=processors,
        seed=arguments.seed,
        tariffs=None if arguments.tariff is None else read_tariffs(arguments.tariff),
        draws_plots=arguments.plots,
        print_line=stderr.print,
        show_reading=show_reading,
    )
    # Without a live table, stderr has a line for each attempt. A reader of JSON lines has the attempts on stdout.
    has_table = stderr.is_terminal or arguments.format == "jsonl"
    reporter = AttemptReporter(stderr.print, table=has_table)
    try:
        snapshot = _carry_out(local_run, arguments.format, stderr, reporter)
    except Interrupted:
        source = (job.metadata.name, "--database", arguments.database) if arguments.database else (str(output),)
        stderr.print(
            f"wattloop run: interrupted; the same command continues the run in {output}; what has ended: "
            f"{_command('history', *source)}"
        )
        return EXIT_INTERRUPTED
    history = JobHistory.of_snapshot(snapshot)
    if arguments.format == "table" and not (stderr.is_terminal and sys.stdout.isatty()):
        _print_table(history)
    results = "Table with the whole reasons, and plots" if arguments.plots else "Table with the whole reasons"
    # What the beginning says is not said again.
    sentences = [each for each in summary(history).splitlines() if each != origin_advice]
    stderr.print("\n".join(["", *sentences, f"{results}: {output}"]))
    for reading in readings:
        stderr.print(f"Read from the output, first: {reading}")
    stderr.print(f"In a browser: {_command('ui', '--database', arguments.database or str(output), '--open')}")
    unreachable = unreachable_message(snapshot.job.status.conditions)
    if unreachable:
        stderr.print(f"The target was not reached: {unreachable}.")
    if not reporter.results:
        stderr.print(
            "Nothing was left to run. To continue, give a larger --recurrences; to start over, another --output."
        )
    return 0 if reporter.is_informative else EXIT_FAILURE


def _command(*arguments: str) -> str:
    """One of Wattloop's commands, with this program's path unless the shell finds it by name."""
    program = sys.argv[0] if Path(sys.argv[0]).name == "wattloop" and not shutil.which("wattloop") else "wattloop"
    # A URL may contain a password.
    return shlex.join((program, *("DATABASE" if "://" in each else each for each in arguments)))


def _carry_out(run: LocalRun, output_format: str, stderr: Console, reporter: AttemptReporter) -> Snapshot:
    from rich.live import Live

    from wattloop_operator.local.display import JsonLinesWriter
    from wattloop_operator.local.live_view import LiveView

    if output_format == "jsonl":
        lines = JsonLinesWriter(sys.stdout)
        return run.carry_out(_both(reporter.show, lines.show))
    if not stderr.is_terminal:
        return run.carry_out(reporter.show)
    with Live(console=stderr, transient=True, auto_refresh=False) as live:
        view = LiveView(live, stderr, run.recurrences or run.job.spec.max_recurrences)
        return run.carry_out(_both(reporter.show, view.show))


def _both(first: Callable[[Snapshot], None], second: Callable[[Snapshot], None]) -> Callable[[Snapshot], None]:
    def show(snapshot: Snapshot) -> None:
        first(snapshot)
        second(snapshot)

    return show


def _print_table(history: JobHistory) -> None:
    from wattloop_operator.history.energy_origin import NOTES, EnergyOrigin, energy_note
    from wattloop_operator.local.live_view import PLAIN_WIDTH, ended_attempts, header, line_text

    attempts = ended_attempts(history)
    lines = [line_text(each, PLAIN_WIDTH, history.units) for each in attempts]
    lines = [header(PLAIN_WIDTH, history.units), *lines] if lines else []
    note = energy_note([each.row.energy_origin for each in attempts])
    # The table has a dash for each energy that is not known.
    lines += [note] if note not in ("", NOTES[EnergyOrigin.UNKNOWN]) else []
    sys.stdout.write("".join(f"{line}\n" for line in lines))


def _with_time(simulation: Simulation | None, job: RecurringTrainingJob) -> Simulation | None:
    """The simulated GPUs of a job; in real time if it plans a pipeline."""
    from wattloop_operator.api.recurring_training_job import Mode

    if simulation is None or job.spec.power.frequency_plan is None or job.spec.mode is Mode.ADVISE:
        return simulation
    if simulation.load is not None:
        raise UsageError(
            "a simulated load is for a training of its own GPUs; the job has a frequencyPlan, whose pipeline "
            "occupies simulated GPUs by nvml_simulator.occupy: leave --simulated-load out"
        )
    sys.stderr.write(
        "the job has a frequencyPlan, and the energy of a pipeline's instructions is measured in real time: simulated "
        "GPUs run in real time\n"
    )
    return replace(simulation, real_time=True)


def _processors() -> tuple[LocalProcessorMeter, str]:
    """The processors of a machine without a GPU, and what a reader of their energies must know, which is printed."""
    from wattloop_operator.history.energy_origin import EnergyOrigin, energy_advice
    from wattloop_operator.local.processor_agent import LocalProcessorMeter

    meter = LocalProcessorMeter()
    origin = EnergyOrigin.PROCESSOR if meter.is_readable else EnergyOrigin.UNKNOWN
    advice = energy_advice([origin])
    sys.stderr.write(f"{advice}\n")
    return meter, advice


COMMAND = Command(
    description="Runs the RecurringTrainingJob of a manifest on this machine with the code of the operator, the "
    "planner, the store and the agent; each training is a process instead of a pod. After an interruption, the same "
    "command continues. It leaves wattloop.db, recurrences.csv, cost.png and tradeoff.png in the output folder.",
    example="  wattloop run examples/digits/job.yaml --recurrences 24 --simulated-gpus 1\n"
    "  wattloop run examples/digits/job.yaml --recurrences 24 --simulated-gpus 1 --format jsonl > recurrences.jsonl",
    configure=_configure,
    run=_run,
)
