"""What a rank tells the plan service: its registration and its reports."""

import secrets
from dataclasses import dataclass, field

from wattloop.pipeline.directives import ClockChoice
from wattloop.pipeline.instruction_scope import InstructionSequence
from wattloop.pipeline.iteration_record import Observer
from wattloop.pipeline.iteration_runner import IterationRunner
from wattloop.pipeline.plan_messages import Directive, RankRegistration, RankReport
from wattloop.pipeline.plan_source import PlannedRank
from wattloop.printable import ascii_text
from wattloop.wire.training_messages import MAX_PRODUCT_CHARACTERS, MAX_REASON_CHARACTERS


@dataclass
class RankMessages:
    """The messages of one process; called in the thread of the plan service.

    Attributes:
        rank: The rank.
        sequence: Its instructions.
        runner: Runs the iterations.
        choice: Chooses the clocks.
        gpus: Number of GPUs of the process.
        observer: Measures the iterations; None: nothing is measured.
        process: Random identity of the process.
    """

    rank: PlannedRank
    sequence: InstructionSequence
    runner: IterationRunner
    choice: ClockChoice
    gpus: int = 0
    observer: Observer | None = None
    process: str = field(default_factory=lambda: secrets.token_hex(16))

    def registration(self) -> RankRegistration | None:
        """What the rank runs; None while its instructions are not known."""
        instructions, allowed = self.sequence.instructions, self.choice.allowed
        if not instructions:
            return None
        place = self.rank.place
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
            microbatches=self.rank.microbatches,
            schedule=self.rank.schedule,
            instructions=tuple(each.text for each in instructions),
            gpu_product=ascii_text(allowed.gpu_product, MAX_PRODUCT_CHARACTERS),
            gpus=self.gpus,
            clocks_megahertz=allowed.allowed_megahertz,
            model=self.rank.model,
        )

    def report(self) -> RankReport:
        """The state of the rank; the exchange sets `sequence` and `finished`."""
        refusal = self.choice.chosen.refusal or self.runner.clocks.problem
        report = RankReport(
            process=self.process,
            sequence=0,
            directive=self.rank.state.acknowledged,
            iterations=self.runner.iterations,
            applied_directive=self.runner.applied_directive,
            mismatch=ascii_text(self.sequence.mismatch, MAX_REASON_CHARACTERS),
            refusal=ascii_text(refusal, MAX_REASON_CHARACTERS),
        )
        return report if self.observer is None else self.observer.measured(report)

    def receive(self, directive: Directive) -> None:
        """Take the answer of the service."""
        self.rank.state.receive(directive)
