"""The plans along a frontier in one compact file: compressed JSON, for the output folder, the database and the API.

The document, in JSON compressed by gzip, is::

    {"format": "wattloop-frequency-plans", "version": 1, "schedule": "1f1b", "stages": 2, "microbatches": 1,
     "gpu_product": "", "blocking_power_watts": 83.64, "knobs": [], "max_clocks": [1.1, 90.5],
     "instructions": [["forward:0:0", "backward:0:0"], …one list a stage, in execution order],
     "settings": [[1410], [1395], …a clock in MHz and the values of the knobs],
     "points": [[1.25, 80.5, [[1, 0], …one list a stage of indices into settings]], …slowest first]}

An instruction is ``kind:part:microbatch``, as training processes register it, where the part is that of the model
(with interleaved schedules a stage has several). The bytes depend on the content alone, so their digest
identifies it. Archives also come from manifests of users. Everything is bounded before it is parsed, and nothing
is executed.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from wattloop.errors import InputError
from wattloop.files.reading import parse_json
from wattloop.pipeline.instruction import INSTRUCTION
from wattloop.pipeline.knobs import MAX_KNOB_CHARACTERS, MAX_KNOBS
from wattloop.pipeline.plan_messages import MAX_MEGAHERTZ, MAX_STAGES
from wattloop.wire.message_fields import Integer, MessageError, Number, String
from wattloop.wire.training_messages import MAX_POWER_WATTS, MAX_PRODUCT_CHARACTERS
from wattloop_planner.frequency.pipeline.graph import OperationGraph
from wattloop_planner.frequency.pipeline.instruction_profiles import PlannedSetting
from wattloop_planner.frequency.pipeline.planning_problem import Problem
from wattloop_planner.frequency.pipeline.plans import Realised, option_settings, plan_energy_joules
from wattloop_planner.frequency.solver.planning import MAX_PLANS, Planning

FORMAT, VERSION = "wattloop-frequency-plans", 1
ARCHIVE = "plans.json.gz"
# Bounds of what is read. An operation of a plan takes up to 4 bytes as JSON.
MAX_COMPRESSED_BYTES = 8 * 1024 * 1024
MAX_BYTES = 64 * 1024 * 1024
# In the manifest of a FrequencyPlan, whose API takes 512 KiB as base64.
MAX_MANIFEST_BYTES = 384 * 1024
# The settings of an archive's operations take 4 times the memory of their text.
MEMORY_FACTOR = 8
MAX_OPERATIONS = 2_000_000
MAX_SETTINGS = 100_000
MAX_SCHEDULE_CHARACTERS = 64
MAX_NUMBER = 1e12
MIN_POINTS = 2
EXPECTED = "plans written by `wattloop plan`"

# Settings of all operations in all plans of an archive.
MAX_CELLS = 16_000_000

Instructions = tuple[tuple[str, ...], ...]
Item = TypeVar("Item")


@dataclass(frozen=True)
class PlannedPoint:
    """A plan on the frontier.

    Attributes:
        choices: Indices into the archive's settings, per stage and in execution order.
    """

    realised: Realised
    choices: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class PlanArchive:
    """The plans along a frontier, and the pipeline that they are for.

    Attributes:
        gpu_product: Product name of the GPUs; empty if unknown.
        blocking_power_watts: Power of a GPU that waits for another stage.
        max_clocks: An iteration with every operation at its highest clock.
        instructions: The instructions as ``kind:part:microbatch``, per stage and in execution order.
        points: The plans, slowest first, none dominated.
    """

    schedule: str
    microbatches: int
    gpu_product: str
    blocking_power_watts: float
    knobs: tuple[str, ...]
    max_clocks: Realised
    instructions: Instructions
    settings: tuple[PlannedSetting, ...]
    points: tuple[PlannedPoint, ...]

    @property
    def stages(self) -> int:
        """Number of stages."""
        return len(self.instructions)

    @property
    def operations(self) -> int:
        """Number of operations of an iteration."""
        return sum(map(len, self.instructions))

    @property
    def waiting_power_watts(self) -> float:
        """Power of all stages while they wait."""
        return self.stages * self.blocking_power_watts

    @cached_property
    def realised(self) -> tuple[Realised, ...]:
        """Time and energy of each plan."""
        return tuple(point.realised for point in self.points)

    @cached_property
    def clocks_megahertz(self) -> frozenset[int]:
        """Every clock of the plans."""
        used = {choice for point in self.points for row in point.choices for choice in set(row)}
        return frozenset(self.settings[choice].frequency_megahertz for choice in used)

    def stage_settings(self, point: int, stage: int) -> tuple[PlannedSetting, ...]:
        """Clocks and knobs of a stage's instructions under a plan, in execution order."""
        return tuple(self.settings[choice] for choice in self.points[point].choices[stage])

    def stage_clocks(self, point: int, stage: int) -> tuple[int, ...]:
        """Clocks in MHz of a stage's instructions under a plan, in execution order."""
        return tuple(setting.frequency_megahertz for setting in self.stage_settings(point, stage))

    def thinned(self, points: int) -> PlanArchive:
        """The archive with at most this many plans: the slowest, the fastest and evenly chosen ones between them."""
        return replace(self, points=tuple(evenly(self.points, points)))


def evenly(items: Sequence[Item], count: int) -> Sequence[Item]:
    """At most this many items, 2 or more: the first, the last, and evenly chosen ones between them.

    Example:
        >>> evenly("abcdefg", 3)
        ['a', 'd', 'g']
    """
    last = len(items) - 1
    if last < count:
        return items
    return [items[round(place * last / (count - 1))] for place in range(count)]


def instruction_texts(graph: OperationGraph) -> Instructions:
    """The graph's instructions as ``kind:part:microbatch``, per stage and in execution order."""
    parts = (graph.chunk_of * graph.stages + graph.stage_of).tolist()
    microbatches, kinds = graph.microbatch_of.tolist(), graph.instruction_of.tolist()
    return tuple(
        tuple(
            f"{graph.instructions[kinds[operation]]}:{parts[operation]}:{microbatches[operation]}"
            for operation in order.tolist()
        )
        for order in graph.order
    )


def archive_of(
    problem: Problem, planning: Planning, max_clocks: Realised, *, schedule: str, gpu_product: str = ""
) -> PlanArchive:
    """The archive of a planning result.

    Args:
        problem: The pipeline.
        planning: The plans.
        max_clocks: An iteration with every operation at its highest clock.
        schedule: Name of the schedule.
        gpu_product: Product name of the GPUs; empty if unknown.
    """
    graph = problem.graph
    plans = evenly(planning.plans, max(2, MAX_CELLS // graph.operations))
    # Not np.unique, which imports numpy.ma.
    used = np.flatnonzero(np.bincount(np.concatenate([problem.places_of(plan.choices) for plan in plans])))
    numbers: dict[PlannedSetting, int] = {}
    number_of = np.zeros(problem.first_options[-1], dtype=np.int64)
    all_settings = option_settings(problem)
    for place in used.tolist():
        number_of[place] = numbers.setdefault(all_settings[place], len(numbers))
    points = []
    for plan in plans:
        chosen = number_of[problem.places_of(plan.choices)]
        rows = tuple(tuple(chosen[order].tolist()) for order in graph.order)
        points.append(PlannedPoint(Realised(plan.time_seconds, plan_energy_joules(problem, plan)), rows))
    return PlanArchive(
        schedule,
        graph.microbatches,
        gpu_product,
        problem.blocking_power_watts,
        problem.profile.knobs,
        max_clocks,
        instruction_texts(graph),
        tuple(numbers),
        tuple(points),
    )


def write_archive(archive: PlanArchive) -> bytes:
    """The archive as bytes. Equal archives give equal bytes.

    Raises:
        InputError: `read_archive` would not read it: it is too large, or an instruction has an unusual name.
    """
    kinds = {text for row in archive.instructions for text in row if INSTRUCTION.fullmatch(text) is None}
    if kinds:
        raise InputError(
            ARCHIVE, f"the instruction {min(kinds)!r:.60}", "kind:part:microbatch with a name such as forward"
        )
    document = {
        "format": FORMAT,
        "version": VERSION,
        "schedule": archive.schedule,
        "stages": archive.stages,
        "microbatches": archive.microbatches,
        "gpu_product": archive.gpu_product,
        "blocking_power_watts": archive.blocking_power_watts,
        "knobs": archive.knobs,
        "max_clocks": [archive.max_clocks.time_seconds, archive.max_clocks.energy_joules],
        "instructions": archive.instructions,
        "settings": [[setting.frequency_megahertz, *setting.knobs] for setting in archive.settings],
        "points": [
            [point.realised.time_seconds, point.realised.energy_joules, point.choices] for point in archive.points
        ],
    }
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
    data = gzip.compress(text, mtime=0)
    if len(text) > MAX_BYTES or len(data) > MAX_COMPRESSED_BYTES:
        raise InputError(
            ARCHIVE,
            f"{len(archive.points)} plans of {archive.operations} operations, {len(text)} bytes",
            f"at most {MAX_BYTES} bytes; request fewer plans",
        )
    return data


def write_within(archive: PlanArchive, max_compressed_bytes: int) -> tuple[PlanArchive, bytes]:
    """The archive as bytes within a limit, with fewer plans if all of them are too large.

    Raises:
        InputError: Two plans are too large, or an instruction has an unusual name.
    """
    while True:
        data = write_archive(archive)
        if len(data) <= max_compressed_bytes:
            return archive, data
        if len(archive.points) <= MIN_POINTS:
            raise InputError(
                ARCHIVE,
                f"{len(data)} bytes for {len(archive.points)} plans of {archive.operations} operations",
                f"at most {max_compressed_bytes} bytes",
            )
        share = max_compressed_bytes / len(data)
        archive = archive.thinned(max(MIN_POINTS, min(len(archive.points) - 1, int(len(archive.points) * share))))


def read_archive(data: bytes, source: str = ARCHIVE, max_bytes: int = MAX_BYTES) -> PlanArchive:
    """Read an archive.

    Raises:
        InputError: The bytes are not a valid archive, or exceed a bound.
    """
    document = _document(data, source, max_bytes)
    try:
        return _archive(document)
    except MessageError as error:
        raise InputError(source, f"invalid plans ({error})", EXPECTED) from error


def _document(data: bytes, source: str, max_bytes: int) -> dict[str, Any]:
    if len(data) > MAX_COMPRESSED_BYTES:
        raise InputError(source, f"{len(data)} bytes", f"at most {MAX_COMPRESSED_BYTES} bytes")
    decompressor = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        text = decompressor.decompress(data, max_bytes + 1)
    except zlib.error as error:
        raise InputError(source, f"data that gzip does not read ({error})", EXPECTED) from error
    if len(text) > max_bytes:
        raise InputError(source, f"more than {max_bytes} bytes after decompression", f"at most {max_bytes} bytes")
    if not decompressor.eof or decompressor.unused_data:
        raise InputError(source, "incomplete data or data after its end", EXPECTED)
    document = parse_json(text, source, EXPECTED, MEMORY_FACTOR * max_bytes)
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise InputError(source, "another document", EXPECTED)
    if document.get("version") != VERSION:
        raise InputError(source, f"version {document.get('version')!r:.20}", f"version {VERSION}")
    return document


def _archive(document: dict[str, Any]) -> PlanArchive:
    stages = Integer(MAX_STAGES).parse("stages", document.get("stages"))
    knobs = tuple(
        String(MAX_KNOB_CHARACTERS).parse(f"knobs[{index}]", knob)
        for index, knob in enumerate(_list("knobs", document.get("knobs"), MAX_KNOBS))
    )
    settings = tuple(
        _setting(f"settings[{index}]", entry, len(knobs))
        for index, entry in enumerate(_list("settings", document.get("settings"), MAX_SETTINGS))
    )
    instructions = _instructions(document.get("instructions"), stages)
    lengths = tuple(map(len, instructions))
    points = tuple(
        _point(f"points[{index}]", entry, lengths, len(settings))
        for index, entry in enumerate(_list("points", document.get("points"), MAX_PLANS))
    )
    if not points:
        raise MessageError("points: found none, expected at least one")
    return PlanArchive(
        String(MAX_SCHEDULE_CHARACTERS).parse("schedule", document.get("schedule")),
        Integer(2**31 - 1).parse("microbatches", document.get("microbatches")),
        String(MAX_PRODUCT_CHARACTERS, min_length=0).parse("gpu_product", document.get("gpu_product")),
        Number(0.0, MAX_POWER_WATTS).parse("blocking_power_watts", document.get("blocking_power_watts")),
        knobs,
        _realised("max_clocks", document.get("max_clocks"), 2),
        instructions,
        settings,
        points,
    )


def _list(place: str, value: object, most: int) -> list[Any]:
    if not isinstance(value, list) or len(value) > most:
        found = f"{len(value)} entries" if isinstance(value, list) else f"{value!r:.40}"
        raise MessageError(f"{place}: found {found}, expected a list of at most {most}")
    return value


def _setting(place: str, entry: object, knobs: int) -> PlannedSetting:
    values = _list(place, entry, 1 + knobs)
    if len(values) != 1 + knobs:
        raise MessageError(f"{place}: found {len(values)} entries, expected a clock and {knobs} knobs")
    clock = Integer(MAX_MEGAHERTZ).parse(place, values[0])
    return PlannedSetting(clock, tuple(String(MAX_KNOB_CHARACTERS).parse(place, value) for value in values[1:]))


def _instructions(value: object, stages: int) -> Instructions:
    rows = _list("instructions", value, MAX_STAGES)
    if not rows or len(rows) != stages:
        raise MessageError(f"instructions: found {len(rows)} stages, expected {stages}")
    left = MAX_OPERATIONS
    for stage, row in enumerate(rows):
        left -= len(_list(f"instructions[{stage}]", row, left))
        for text in row:
            if not isinstance(text, str) or INSTRUCTION.fullmatch(text) is None:
                raise MessageError(
                    f"instructions[{stage}]: found {text!r:.60}, expected kind:part:microbatch, such as forward:0:12"
                )
    return tuple(map(tuple, rows))


def _realised(place: str, value: object, length: int) -> Realised:
    values = _list(place, value, length)
    if len(values) != length:
        raise MessageError(f"{place}: found {len(values)} entries, expected {length}")
    time = Number(0.0, MAX_NUMBER).parse(f"{place}[0]", values[0])
    if time <= 0:
        raise MessageError(f"{place}[0]: found {time}, expected a time above 0")
    return Realised(time, Number(0.0, MAX_NUMBER).parse(f"{place}[1]", values[1]))


def _point(place: str, entry: object, lengths: Sequence[int], settings: int) -> PlannedPoint:
    realised = _realised(place, entry, 3)
    rows = _list(f"{place}[2]", entry[2] if isinstance(entry, list) else None, len(lengths))
    found = [len(_list(f"{place}[2]", row, MAX_OPERATIONS)) for row in rows]
    if found != list(lengths):
        raise MessageError(f"{place}: found {found} operations a stage, expected {list(lengths)}")
    for row in rows:
        # A bool is an int, and would be an index.
        if not all(type(choice) is int and 0 <= choice < settings for choice in row):
            raise MessageError(f"{place}: found another entry than an index of settings, 0 to {settings - 1}")
    return PlannedPoint(realised, tuple(map(tuple, rows)))
