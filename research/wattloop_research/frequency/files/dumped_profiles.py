"""Makes measurements of a profile from dumps: N.prof.json and N.sched.json of runs whose clocks are known.

Perseus' profiler runs every rank at one clock in each run. Wattloop's dumps name the instructions beside their
clocks, so runs under plans count as well. A run without clocks ran at free clocks, which tell nothing of one.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from wattloop.errors import InputError
from wattloop.pipeline.instruction import MAX_INSTRUCTIONS, Instruction
from wattloop.pipeline.plan_messages import MAX_MEGAHERTZ
from wattloop.wire.message_fields import shown
from wattloop_planner.frequency.pipeline.merged_profiles import ClockMeasurement
from wattloop_research.frequency.files.exported_instructions import measurement
from wattloop_research.frequency.files.recorded_run_file import read_runs, read_settings
from wattloop_research.frequency.recorded_runs import RankRecord, RecordedRun
from wattloop_research.training.run_dump import WATTS

# Times and energies of the repetitions at one (rank, stage, kind, clock).
Repeated = dict[tuple[int, int, str, int], tuple[list[float], list[float]]]


def read_dumps(folder: str | Path, warm_up_iterations: int | None) -> Iterator[ClockMeasurement]:
    """The mean time and energy of each kind of instruction of each rank at each clock, with standard errors.

    Args:
        folder: The folder.
        warm_up_iterations: First iterations of each run to leave out; None: by the published rule a tenth of them,
            and at least one.

    Raises:
        OperationError: The folder cannot be read.
        InputError: A file is invalid, or no run has clocks.
    """
    found: Repeated = {}
    for run in read_runs(folder):
        clocks = Path(folder) / f"{run.number}.sched.json"
        if clocks.exists():
            _add_run(run, clocks, warm_up_iterations, found)
    if not found:
        raise InputError(
            str(folder), "no run whose clocks are known", "N.sched.json with clocks beside N.prof.json, of some runs"
        )
    for (rank, stage, kind, clock), (seconds, joules) in sorted(found.items()):
        yield measurement(rank, stage, kind, clock, seconds=seconds, joules=joules)


def _add_run(run: RecordedRun, file: Path, warm_up_iterations: int | None, found: Repeated) -> None:
    entries = read_settings(file)
    first = max(run.iterations // 10, 1) if warm_up_iterations is None else warm_up_iterations
    for record in run.ranks:
        entry = entries.get(record.rank)
        if entry is None:
            raise InputError(str(file), f"no clocks of rank {record.rank}", "those of each rank of the run")
        clocks = _clocks(str(file), entry)
        if clocks:
            instructions = _instructions(str(file), entry)
            if instructions and len(instructions) != len(clocks):
                found_here = f"{len(clocks)} clocks and {len(instructions)} instructions"
                raise InputError(str(file), found_here, "a clock for each", column=f"rank {record.rank}")
            if instructions or len(set(clocks)) == 1:
                # Otherwise they are Perseus' under a plan, with those of operations that it does not record.
                _add_rank(record, clocks, instructions, first, found)


def _add_rank(
    record: RankRecord, clocks: Sequence[int], instructions: Sequence[Instruction], first: int, found: Repeated
) -> None:
    for kind, iterations in record.instruction_seconds.items():
        energies = record.instruction_joules.get(kind, ())
        settings = [(each.stage, clock) for each, clock in zip(instructions, clocks, strict=False) if each.kind == kind]
        for number in range(first, len(iterations)):
            seconds = iterations[number]
            joules = energies[number] if number < len(energies) else seconds[:0]
            # A rank whose instructions are not named has one stage and one clock.
            places = settings or [(record.rank, clocks[0])] * len(seconds)
            if len(places) != len(seconds):
                continue
            for index, (stage, clock) in enumerate(places):
                of_place = found.setdefault((record.rank, stage, kind, clock), ([], []))
                of_place[0].append(float(seconds[index]))
                if len(joules) == len(seconds):
                    of_place[1].append(float(joules[index]))


def _clocks(source: str, entry: Mapping[str, Any]) -> list[int]:
    clocks = entry.get("power_states")
    if entry.get("unit") == WATTS:
        # The clocks are free under power limits.
        return []
    if not isinstance(clocks, list) or len(clocks) > MAX_INSTRUCTIONS:
        raise InputError(source, shown(clocks), f"a list of at most {MAX_INSTRUCTIONS} clocks", column="power_states")
    for clock in clocks:
        if type(clock) is not int or not 0 < clock <= MAX_MEGAHERTZ:
            raise InputError(source, shown(clock), f"1 to {MAX_MEGAHERTZ} MHz", column="power_states")
    return clocks


def _instructions(source: str, entry: Mapping[str, Any]) -> list[Instruction]:
    texts = entry.get("instructions", [])
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise InputError(source, shown(texts), "a list of kind:stage:microbatch", column="instructions")
    try:
        return [Instruction.of(text) for text in texts]
    except ValueError as error:
        raise InputError(source, str(error), "kind:stage:microbatch", column="instructions") from error
