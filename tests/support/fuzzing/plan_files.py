"""Fuzz target: plan files, as `wattloop plan` and a training script read them, and its profiles and graphs."""

import ast
import contextlib
import io
import json
import math
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

from support.fuzzing.target import DefectError
from support.pipelines.registrations import instructions_of
from wattloop.errors import InputError, UsageError
from wattloop.pipeline.directives import ClockChoice, DirectiveState, LocalDirective
from wattloop.pipeline.instruction import Instruction
from wattloop.pipeline.instruction_scope import InstructionSequence
from wattloop.pipeline.pipeline_place import pipeline_place
from wattloop.pipeline.rank_plan_file import given_plan, plan_row, read_rows
from wattloop_planner.frequency.pipeline.graph import OperationGraph, schedule_graph
from wattloop_planner.frequency.pipeline.planning_problem import Problem, pipeline_problem
from wattloop_planner.frequency.pipeline.plans import evaluate
from wattloop_planner.frequency.pipeline.profile_file import read_blocking_power, read_gpu_product, read_profile
from wattloop_planner.frequency.pipeline.schedules import OneForwardOneBackward
from wattloop_research.frequency.files.plan_file import knobs_of_plan, read_plan, write_plan
from wattloop_research.frequency.user_graph import read_graph

STAGES = MICROBATCHES = 2
BLOCKING_WATTS = 80.0
KNOBS = ("sm",)
# Begins an input that is a profile, or a graph; others are plan files.
PROFILE, GRAPH = b"profile\n", b"graph\n"
CLOCKS = (900, 1100, 1300, 1410)
MAX_LINE_CHARACTERS = 4096
# Python's own parser is slow, and its memory large, for long texts.
MAX_COMPARED_CHARACTERS = 4096


class PlanFileTarget:
    """The files that a user gives to `wattloop plan` and to a training's pipeline; an input is one of them.

    The first line says which: ``profile``, ``graph``, or none for a plan file.

    Checks: a file is read, or refused with a short printable line; a plan that is read has the value
    that Python's own parser gives it, is written and read unchanged, and its time and energy are
    finite; a rank has a clock for each instruction; a profile has positive finite numbers.
    """

    tokens = (
        b"[", b"]", b"(", b")", b"{", b"}", b",", b":", b"'forward'", b'"backward"', b"('forward', 900)", b"900, ",
        b"('forward', 900, {'sm': '8'})", b"{'sm': '8'}", b"True", b"None", b"-1", b"1e3", b"1_000", b"0x10", b"007",
        b"1j", b"...", b"'a' 'b'", b"'\\x41'", b"'''", b"b'a'", b"f'{a}'", b"lambda: 0", b"__import__('os')",
        b"# GPU product: NVIDIA A40\n", b"#\xe2\x80\xa8", b"\x0c", b"\\\n", b"\r", b"\x00", b"\xef\xbb\xbf", b"\xff",
        b"\xc2\xb2", b"[" * 2000, b"(" * 2000, b"9" * 20, b"9" * 5000, b"1," * 9000, PROFILE, GRAPH,
        b"stage,instruction,frequency,time,energy", b",rank", b",time_error", b",energy_error", b",blocking_power",
        b",sm", b'"', b'""', b"nan", b"inf", b"1e308", b"1e-308", b"-0.0", b"5e-324", b"\xd9\xa3", b'"operations": [',
        b'"order": [[', b'"edges": [[', b'"stage": 0', b'"microbatch": ', b'"instruction": '
    )  # fmt: skip

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self._file = Path(self._stack.enter_context(tempfile.TemporaryDirectory())) / "file"
        self._graph = schedule_graph(OneForwardOneBackward(STAGES, MICROBATCHES))
        self._problems = [self._problem(knobs) for knobs in ((), KNOBS)]

    def _problem(self, knobs: tuple[str, ...]) -> Problem:
        self._file.write_text(_profile(knobs), encoding="utf-8")
        return pipeline_problem(self._graph, read_profile(self._file, knobs), BLOCKING_WATTS)

    def seeds(self) -> list[bytes]:
        """Plans with each kind of entry, profiles with each further column, graphs, and hostile texts."""
        kinds = [[text.split(":")[0] for text in instructions_of(stage)] for stage in range(STAGES)]
        named = [[(kind, 1100) for kind in row] for row in kinds]
        knobs = [[(kind, 1100, {"sm": "8"}) for kind in row] for row in kinds]
        plain = [[CLOCKS[place % 4] for place, _ in enumerate(row)] for row in kinds]
        other = [[(kind.title(), 1410) for kind in row] for row in kinds]
        operations = [
            {"stage": stage, "instruction": kind, "microbatch": place // 2}
            for stage, row in enumerate(kinds)
            for place, kind in enumerate(row)
        ]
        graph = {"operations": operations, "order": [[0, 1, 2, 3], [4, 5, 6, 7]], "edges": [[0, 4], [5, 2]]}
        cycle = graph | {"edges": [[0, 4], [4, 0]]}
        ranks = _profile(()).replace("energy\n", "energy,rank\n").replace(".5\n", ".5,0\n")
        texts = [
            *map(str, (plain, named, knobs, other)),
            f"{plain}\n# GPU product: NVIDIA A40\n# Plan 0: time 1.25 s\n",
            "[\n[1410, 1410,],\n[(900), (900,)],]  # x",
            "[[9" + "9" * 5000 + "]]",
            "[" * 2000,
            *(PROFILE.decode() + text for text in (_profile(()), _profile(KNOBS), ranks)),
            *(GRAPH.decode() + json.dumps(each) for each in (graph, cycle)),
        ]
        return [text.encode() for text in texts]

    def check(self, data: bytes) -> None:
        kind = next((each for each in (PROFILE, GRAPH) if data.startswith(each)), b"")
        self._file.write_bytes(data.removeprefix(kind))
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            if kind == PROFILE:
                self._check_profile()
            elif kind == GRAPH:
                self._check_graph()
            else:
                self._check_plan(data)

    def close(self) -> None:
        self._stack.close()

    def _check_plan(self, data: bytes) -> None:
        with contextlib.suppress(UnicodeDecodeError):
            _check_rows(self._file, data.decode())
        for problem in self._problems:
            with _refusals():
                rows = read_plan(self._file, self._graph, problem.profile.knobs)
                found = evaluate(problem, rows)
                if not (0 < found.time_seconds < math.inf and 0 < found.energy_joules < math.inf):
                    raise DefectError(f"a plan with {found}")
                written = io.StringIO(newline="\n")
                write_plan(written, self._graph, rows, (), problem.profile.knobs)
                self._file.write_text(written.getvalue(), encoding="utf-8")
                if read_plan(self._file, self._graph, problem.profile.knobs) != rows:
                    raise DefectError("a plan that is not written and read unchanged")
        with _refusals():
            knobs_of_plan(self._file)
        for stage in range(STAGES):
            with _refusals():
                self._check_rank(stage)

    def _check_rank(self, stage: int) -> None:
        row, gpu_product = given_plan(self._file, pipeline_place(stage=stage, stages=STAGES), "")
        sequence = InstructionSequence([Instruction.of(text) for text in instructions_of(stage)])
        state = DirectiveState()
        choice = ClockChoice(state, sequence, lambda *_: None)
        state.receive(LocalDirective.of_plan(1, 0, row, gpu_product))
        chosen = choice.clocks_of(0, "")
        if chosen.megahertz or not chosen.refusal:
            raise DefectError(f"a rank without GPUs that holds {chosen}")

    def _check_profile(self) -> None:
        for knobs in ((), KNOBS):
            with _refusals():
                profile = read_profile(self._file, knobs)
                for option in (each for options in profile.options.values() for each in options):
                    numbers = (option.frequency_megahertz, option.time_seconds, option.energy_joules)
                    if not all(0 < number < math.inf for number in numbers):
                        raise DefectError(f"a profile with {option}")
                problem = pipeline_problem(self._graph, profile, BLOCKING_WATTS)
                rows = [[(CLOCKS[0], *("8" for _ in knobs)) for _ in order] for order in self._graph.order]
                evaluate(problem, [[row[0] for row in each] for each in rows])
        with _refusals():
            if not 0 <= read_blocking_power(self._file) < math.inf:
                raise DefectError("a blocking power that is no number of watts")
        with _refusals():
            read_gpu_product(self._file)

    def _check_graph(self) -> None:
        with _refusals():
            graph: OperationGraph = read_graph(self._file)
            if sorted(operation for order in graph.order for operation in order.tolist()) != [*range(graph.operations)]:
                raise DefectError("a graph whose order lacks an operation")


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    """Check that what is refused is refused with a short printable line."""
    try:
        yield
    except (InputError, UsageError) as error:
        line = str(error)
        if not line or len(line) > MAX_LINE_CHARACTERS or not line.isprintable():
            raise DefectError(f"a refusal of {len(line)} characters: {line[:200]!r}") from error


def _check_rows(path: Path, text: str) -> None:
    """Check that a plan that is read has the rows that it has in Python."""
    try:
        found = [plan_row(row, "plan") for row in read_rows(path)[0]]
    except InputError:
        return
    if len(text) > MAX_COMPARED_CHARACTERS:
        return
    try:
        expected = ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        # Python refuses what this parser takes, such as an indented line.
        return
    if repr(found) != repr([plan_row(row, "plan") for row in expected]):
        raise DefectError(f"{text!r:.200} is {found!r:.200}, expected {expected!r:.200}")


def _profile(knobs: tuple[str, ...]) -> str:
    lines = [
        ",".join((str(stage), kind, str(clock), f"{100 / clock:.6f}", f"{clock / 10:.0f}.5", *("8" for _ in knobs)))
        for stage in range(STAGES)
        for kind in ("forward", "backward")
        for clock in CLOCKS
    ]
    return "\n".join((",".join(("stage,instruction,frequency,time,energy", *knobs)), *lines)) + "\n"
