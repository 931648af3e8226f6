"""Merges registrations of ranks: complete schedules that agree with those of the other ranks."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from wattloop.pipeline.instruction import Instruction
from wattloop.pipeline.plan_messages import RankRegistration
from wattloop.wire.item_cache import cached_by_items
from wattloop_operator.reconcile.pipeline.liveness import is_silent, named
from wattloop_operator.reconcile.pipeline.pipeline_state import (
    MAX_CACHED_INSTRUCTIONS,
    MAX_CLOCK_LISTS,
    MAX_PIPELINE_INSTRUCTIONS,
    MAX_PROFILES_OF_ATTEMPT,
    MAX_RANKS,
    PipelineProfile,
    PipelineProfileKey,
    PipelineRank,
    PipelineState,
    partition_digest,
)

# What all ranks of a job register alike.
SHARED = (
    "data_parallel",
    "tensor_parallel",
    "pipeline_parallel",
    "stages",
    "microbatches",
    "schedule",
    "gpu_product",
    "model",
)
# One of these runs for each microbatch of a stage that has any of them.
BACKWARD_KINDS = ("backward", "forwardbackward")


class RegistrationConflictError(Exception):
    """A registration is incomplete, or contradicts that of another rank: HTTP 409."""


class Registrar:
    """Merges registrations into a state, one after another.

    Args:
        state: The state before.
        now: When the registrations arrived.

    Attributes:
        state: The state with all registrations that were merged.
    """

    def __init__(self, state: PipelineState, now: datetime) -> None:
        self.state = state
        self._now = now
        self._ranks = dict(state.ranks)
        self._is_indexed = False

    def merge(self, registration: RankRegistration) -> None:
        """Merge a registration; one of the same process changes nothing.

        Raises:
            RegistrationConflictError: It lacks an instruction, or contradicts the one of a rank that is alive.
        """
        present = self._ranks.get(registration.rank)
        if present is not None and present.registration == registration:
            return
        check_microbatches(registration)
        profile = self._profile(registration)
        if not self._is_indexed:
            self._index()
        while (conflict := self._conflict(registration)) is not None:
            other, what = conflict
            if not self._gives_way(self._ranks[other]):
                raise RegistrationConflictError(what)
            # Left by an earlier start of the training with another configuration, and all others of that start too.
            self._ranks = {
                number: rank
                for number, rank in self._ranks.items()
                if number != other and not (self._gives_way(rank) and contradict(rank.registration, registration))
            }
            self._index()
        self._check_clocks(registration)
        self._ranks[registration.rank] = PipelineRank(registration, self._now, self._now)
        if present is None or _same_part(present.registration, registration):
            self._enter(registration)
        else:
            self._index()
        keys = tuple(dict.fromkeys((*self.state.profile_keys, profile.key)))
        self.state = replace(self.state, ranks=dict(self._ranks), profile=profile, profile_keys=keys)

    def _gives_way(self, rank: PipelineRank) -> bool:
        return rank.finished or is_silent(rank, self._now)

    def _index(self) -> None:
        self._is_indexed = True
        self._places: dict[tuple[int, int, int], int] = {}
        self._by_pipeline_rank: dict[int, dict[int, None]] = defaultdict(dict)
        self._by_stage: dict[int, int] = {}
        self._by_clocks: dict[tuple[int, ...], int] = {}
        for rank in self._ranks.values():
            self._enter(rank.registration)

    def _enter(self, registration: RankRegistration) -> None:
        self._places[_place(registration)] = registration.rank
        self._by_clocks.setdefault(registration.clocks_megahertz, registration.rank)
        same = self._by_pipeline_rank[registration.pipeline_rank]
        if not same:
            self._by_stage |= dict.fromkeys(stages_of_instructions(registration.instructions), registration.rank)
        same[registration.rank] = None

    def _conflict(self, new: RankRegistration) -> tuple[int, str] | None:
        """Another rank that the registration contradicts, and how."""
        other = next((number for number in self._ranks if number != new.rank), None)
        if other is None:
            return None
        there = self._ranks[other].registration
        for name in SHARED:
            mine, its = getattr(new, name), getattr(there, name)
            if mine != its:
                return other, f"{name}: rank {new.rank} registers {mine!r:.140}, and rank {other} {its!r:.140}"
        return self._place_conflict(new) or self._instructions_conflict(new) or self._size_conflict(new)

    def _check_clocks(self, new: RankRegistration) -> None:
        others = self._by_clocks.keys() - {new.clocks_megahertz}
        if len(others) >= MAX_CLOCK_LISTS:
            raise RegistrationConflictError(
                f"rank {new.rank} registers clocks unlike those of {named(tuple(sorted(self._by_clocks.values())))}, "
                f"expected at most {MAX_CLOCK_LISTS} different lists of clocks in a pipeline"
            )

    def _size_conflict(self, new: RankRegistration) -> tuple[int, str] | None:
        if self._by_pipeline_rank[new.pipeline_rank]:
            return None
        others = [next(iter(ranks)) for ranks in self._by_pipeline_rank.values() if ranks]
        total = len(new.instructions) + sum(len(self._ranks[rank].registration.instructions) for rank in others)
        if total <= MAX_PIPELINE_INSTRUCTIONS:
            return None
        return others[0], (
            f"rank {new.rank} registers {len(new.instructions)} instructions, which makes {total:,} of a pipeline with "
            f"those of {named(tuple(others))}, expected at most {MAX_PIPELINE_INSTRUCTIONS:,}"
        )

    def _place_conflict(self, new: RankRegistration) -> tuple[int, str] | None:
        holder = self._places.get(_place(new), new.rank)
        if holder == new.rank or _place(self._ranks[holder].registration) != _place(new):
            return None
        return holder, (
            f"rank {new.rank} and rank {holder} both register data rank {new.data_rank}, tensor rank "
            f"{new.tensor_rank} and pipeline rank {new.pipeline_rank}"
        )

    def _instructions_conflict(self, new: RankRegistration) -> tuple[int, str] | None:
        same = next((rank for rank in self._by_pipeline_rank[new.pipeline_rank] if rank != new.rank), None)
        if same is not None:
            what = first_difference(new.instructions, self._ranks[same].registration.instructions)
            place = f"both at pipeline rank {new.pipeline_rank}"
            return None if what is None else (same, f"rank {new.rank} and rank {same}, {place}, differ: {what}")
        for stage in stages_of_instructions(new.instructions):
            holder = self._by_stage.get(stage, new.rank)
            if holder != new.rank:
                return holder, (
                    f"stage {stage} is run by rank {new.rank} at pipeline rank {new.pipeline_rank}, and by rank "
                    f"{holder} at pipeline rank {self._ranks[holder].registration.pipeline_rank}"
                )
        return None

    def _profile(self, registration: RankRegistration) -> PipelineProfile:
        key = PipelineProfileKey(
            self.state.key.job_uid,
            self.state.batch_size,
            registration.model,
            partition_digest(registration),
            registration.gpu_product,
            self.state.image_digest,
        )
        used = self.state.profile_keys
        if key not in used and len(used) >= MAX_PROFILES_OF_ATTEMPT:
            raise RegistrationConflictError(
                f"rank {registration.rank} registers model {registration.model!r} with {registration.ranks} ranks in "
                f"{registration.stages} stages, and the attempt has registered {len(used)} other configurations, "
                f"expected at most {MAX_PROFILES_OF_ATTEMPT}; the next attempt may register it"
            )
        profile = self.state.profile
        return profile if profile is not None and profile.key == key else PipelineProfile(key)


def check_microbatches(registration: RankRegistration) -> None:
    """Check that each stage of a rank runs every microbatch.

    Raises:
        RegistrationConflictError: An instruction is missing; the message names it.
    """
    if registration.ranks > MAX_RANKS:
        raise RegistrationConflictError(f"found {registration.ranks} ranks, expected at most {MAX_RANKS}")
    if missing := missing_instruction(registration.instructions, registration.microbatches):
        raise RegistrationConflictError(
            f"rank {registration.rank} registers {len(registration.instructions)} instructions without {missing}, and "
            f"the schedule {registration.schedule} runs it for each of {registration.microbatches} microbatches"
        )


@cached_by_items(MAX_CACHED_INSTRUCTIONS)
def missing_instruction(instructions: tuple[str, ...], microbatches: int) -> str:
    """An instruction that the others of its stage imply; empty if none is missing.

    Example:
        >>> missing_instruction(("forward:0:0", "forward:0:1", "backward:0:0"), 2)
        'backward:0:1'
    """
    found: dict[tuple[int, str], set[int]] = defaultdict(set)
    for instruction in map(Instruction.of, instructions):
        kind = BACKWARD_KINDS[0] if instruction.kind in BACKWARD_KINDS else instruction.kind
        found[instruction.stage, kind].add(instruction.microbatch)
    stages = sorted({stage for stage, _ in found})
    for kind in ("forward", BACKWARD_KINDS[0]):
        if not any((stage, kind) in found for stage in stages):
            continue
        for stage in stages:
            there = found[stage, kind]
            # Not a set of all numbers: a registration may state a million microbatches.
            missing = next((number for number in range(microbatches) if number not in there), None)
            if missing is not None:
                return f"{kind}:{stage}:{missing}"
    return ""


def contradict(before: RankRegistration, after: RankRegistration) -> bool:
    """Whether two ranks cannot be of one job, apart from the number of instructions of all ranks."""
    if any(getattr(before, name) != getattr(after, name) for name in SHARED) or _place(before) == _place(after):
        return True
    if before.pipeline_rank == after.pipeline_rank:
        return before.instructions != after.instructions
    return not set(stages_of_instructions(before.instructions)).isdisjoint(stages_of_instructions(after.instructions))


def first_difference(mine: Sequence[str], its: Sequence[str]) -> str | None:
    """The first position at which two sequences of instructions differ; None if they are equal.

    Example:
        >>> first_difference(("forward:0:0", "backward:0:0"), ("forward:0:0",))
        'instruction 1 is backward:0:0, and it is missing there'
    """
    if mine is its or mine == its:
        return None
    length = min(len(mine), len(its))
    place = next((index for index in range(length) if mine[index] != its[index]), length)
    here, there = (texts[place] if place < len(texts) else "missing" for texts in (mine, its))
    return f"instruction {place} is {here}, and it is {there} there"


def _same_part(before: RankRegistration, after: RankRegistration) -> bool:
    return (
        _place(before) == _place(after)
        and before.instructions == after.instructions
        and before.clocks_megahertz == after.clocks_megahertz
    )


def _place(registration: RankRegistration) -> tuple[int, int, int]:
    return registration.data_rank, registration.tensor_rank, registration.pipeline_rank


@cached_by_items(MAX_CACHED_INSTRUCTIONS)
def stages_of_instructions(instructions: tuple[str, ...]) -> tuple[int, ...]:
    """The model stages that instructions are of, in order."""
    return tuple(sorted({Instruction.of(text).stage for text in instructions}))
