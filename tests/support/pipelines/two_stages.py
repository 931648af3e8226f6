"""Two ranks of a pipeline in two threads, on the GPUs of a simulated machine in real time."""

import queue
import threading
from collections.abc import Callable, Mapping
from typing import Any

from nvml_simulator import Machine, model_named
from wattloop.pipeline import Pipeline, PlansCompleted

STAGES, MICROBATCHES = 2, 4
FORWARD_SECONDS = {0: 0.02, 1: 0.012}
SPEED = model_named("A100").teraflops_per_second


class Stages:
    """Two ranks in two threads, which send each other activations and gradients.

    Args:
        machine: Has their GPUs.
        environment: The variables that they read.
        plan: Makes what sets the clocks of one rank; default: nothing.
        options: Arguments of their pipelines.
    """

    def __init__(
        self, machine: Machine, environment: Mapping[str, str], plan: Callable[[], Any] = lambda: None, **options: Any
    ) -> None:
        self._plan = plan
        self._machine = machine
        self._environment = environment
        self._options = options
        self._activations: queue.Queue[int] = queue.Queue()
        self._gradients: queue.Queue[int] = queue.Queue()
        self._count, self._ends = 0, False
        self._is_over: Callable[[], bool] = lambda: True
        self._step = threading.Barrier(STAGES, self._decide)
        self.errors: list[BaseException] = []
        self.clocks: list[tuple[int, ...]] = [()] * STAGES

    @property
    def iterations(self) -> int:
        """Iterations so far."""
        return self._count - 1

    def train(self, iterations: int) -> None:
        """So many iterations."""
        self._is_over = lambda: self._count == iterations
        self._start()

    def train_until(self, is_over: Callable[[], bool]) -> None:
        """Iterations until a condition holds, which is looked at between them."""
        self._is_over = is_over
        self._start()

    def _start(self) -> None:
        threads = [threading.Thread(target=self._rank, args=(stage,)) for stage in range(STAGES)]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        except BaseException:
            # A test that is out of time would leave before the ranks, which read the memory of its simulated machine.
            self._step.abort()
            for thread in threads:
                thread.join()
            raise
        assert not self.errors

    def _decide(self) -> None:
        """In one of the threads, while all of them wait."""
        self._ends = self._is_over()
        self._count += 1

    def _rank(self, stage: int) -> None:
        try:
            with Pipeline(
                stage=stage,
                stages=STAGES,
                microbatches=MICROBATCHES,
                gpus=[stage],
                environment=self._environment,
                plan=self._plan(),
                **self._options,
            ) as pipeline:
                while True:
                    self._step.wait(timeout=60)
                    if self._ends:
                        break
                    with pipeline.iteration():
                        self._iterate(pipeline, stage)
                    self.clocks[stage] = pipeline.clocks_megahertz
        except PlansCompleted:
            return
        except BaseException as error:  # noqa: BLE001 - of a thread
            self.errors.append(error)
            self._step.abort()

    def _iterate(self, pipeline: Pipeline, stage: int) -> None:
        if stage == 0:
            self._forward(pipeline, stage, 0)
            for microbatch in range(1, MICROBATCHES):
                self._forward(pipeline, stage, microbatch)
                self._backward(pipeline, stage, microbatch - 1)
            self._backward(pipeline, stage, MICROBATCHES - 1)
        else:
            for microbatch in range(MICROBATCHES):
                self._forward(pipeline, stage, microbatch)
                self._backward(pipeline, stage, microbatch)

    def _forward(self, pipeline: Pipeline, stage: int, microbatch: int) -> None:
        if stage:
            self._activations.get(timeout=60)
        with pipeline.instruction("forward", microbatch=microbatch):
            self._machine.occupy(stage, SPEED * FORWARD_SECONDS[stage], 0.6)
        if not stage:
            self._activations.put(microbatch)

    def _backward(self, pipeline: Pipeline, stage: int, microbatch: int) -> None:
        if not stage:
            self._gradients.get(timeout=60)
        with pipeline.instruction("backward", microbatch=microbatch):
            self._machine.occupy(stage, SPEED * 2 * FORWARD_SECONDS[stage], 0.75)
        if stage:
            self._gradients.put(microbatch)
