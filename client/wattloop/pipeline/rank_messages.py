"""What a rank tells the plan service: its registration and its reports."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field

from wattloop.pipeline.clock_choice import ClockChoice
from wattloop.pipeline.directives import DirectiveState
from wattloop.pipeline.instruction_sequence import InstructionSequence
from wattloop.pipeline.iteration_record import Observer
from wattloop.pipeline.iteration_runner import IterationRunner
from wattloop.pipeline.pipeline_place import PipelinePlace
from wattloop.pipeline.plan_messages import Directive, RankRegistration, RankReport
from wattloop.pipeline.profile_csv import ProfileKey
from wattloop.printable import ascii_text
from wattloop.wire.training_messages import MAX_PRODUCT_CHARACTERS, MAX_REASON_CHARACTERS


@dataclass
class RankMessages:
    """The messages of one process; called in the thread of the plan service.

    Attributes:
        place: The place of the rank.
        microbatches: Number of microbatches in an iteration.
        schedule: Name of the schedule.
        model: Name or digest of the model and its partition; may be empty.
        sequence: The instructions of the rank.
        runner: Runs the iterations.
        choice: Chooses the clocks.
        state: The directives received.
        gpus: Number of GPUs of the process.
        observer: Measures the iterations; None: nothing is measured.
        process: Random identity of the process.
    """

    place: PipelinePlace
    microbatches: int
    schedule: str
    model: str
    sequence: InstructionSequence
    runner: IterationRunner
    choice: ClockChoice
    state: DirectiveState
    gpus: int = 0
    observer: Observer | None = None
    process: str = field(default_factory=lambda: secrets.token_hex(16))

    @property
    def profile_key(self) -> ProfileKey:
        """What the measurements of this rank apply to, in a profile without an operator."""
        place = self.place
        partition = (
            f"data={place.data_parallel} tensor={place.tensor_parallel} pipeline={place.pipeline_parallel} "
            f"stages={place.stage_count} microbatches={self.microbatches} schedule={self.schedule}"
        )
        return ProfileKey(self.choice.allowed.gpu_product.strip(), self.model.strip(), partition)

    def registration(self) -> RankRegistration | None:
        """See `wattloop.pipeline.plan_service.Rank`."""
        instructions, allowed = self.sequence.instructions, self.choice.allowed
        if not instructions:
            return None
        place = self.place
        return RankRegistration(
            process=self.process,
            rank=place.rank,
            data_parallel=place.data_parallel,
            tensor_parallel=place.tensor_parallel,
            pipeline_parallel=place.pipeline_parallel,
            data_rank=place.data_rank,
            tensor_rank=place.tensor_rank,
            pipeline_rank=place.pipeline_rank,
            stages=place.stage_count,
            microbatches=self.microbatches,
            schedule=self.schedule,
            instructions=tuple(each.text for each in instructions),
            gpu_product=ascii_text(allowed.gpu_product, MAX_PRODUCT_CHARACTERS),
            gpus=self.gpus,
            clocks_megahertz=allowed.allowed_megahertz,
            model=self.model,
        )

    def report(self) -> RankReport:
        """See `wattloop.pipeline.plan_service.Rank`."""
        refusal = self.choice.chosen.refusal or self.runner.clocks.problem
        report = RankReport(
            process=self.process,
            sequence=0,
            directive=self.state.acknowledged,
            iterations=self.runner.iterations,
            applied_directive=self.runner.applied_directive,
            mismatch=ascii_text(self.sequence.mismatch, MAX_REASON_CHARACTERS),
            refusal=ascii_text(refusal, MAX_REASON_CHARACTERS),
        )
        return report if self.observer is None else self.observer.measured(report)

    def receive(self, directive: Directive) -> None:
        """See `wattloop.pipeline.plan_service.Rank`."""
        self.state.receive(directive)
