"""The pipeline of a job on a real API server, whose messages are stored as the plan service does."""

from dataclasses import replace
from datetime import UTC, datetime

from support.control_plane.in_process_operator import InProcessOperator
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.cluster.frequency_plans import FrequencyPlanWriter
from wattloop_operator.domain.names import JobKey
from wattloop_operator.reconcile.pipeline.pipeline_state import PipelineKey, PipelineState
from wattloop_operator.store import Store


class StoredPipeline:
    """The pipeline of a job's first attempt, and the writer of FrequencyPlans.

    Args:
        operator: Reconciles the job, and has the cache.
    """

    def __init__(self, operator: InProcessOperator, store: Store, key: JobKey) -> None:
        self.operator, self.store, self.key = operator, store, key
        operator.reconcile(key)
        (self.recurrence,) = (each for each in self.recurrences() if each.spec.job_ref.name == key.name)
        spec = self.recurrence.spec
        self.pipeline = PipelineKey(spec.job_ref.uid, spec.index, spec.attempt)
        self.now = datetime(2026, 3, 1, 12, tzinfo=UTC)
        self.start_writer()

    def start_writer(self) -> None:
        """Write with a writer that knows nothing yet, as after a restart of the operator."""
        self.writer = FrequencyPlanWriter(
            self.operator.api, self.operator.cache, self.store.pipelines, lambda: self.now
        )

    def recurrences(self) -> list[TrainingRecurrence]:
        """All recurrences of the cache, which has this job's as they are now."""
        self.operator.sync_cache(self.key)
        return [cached.value for cached in self.operator.cache.recurrences.all()]

    def store_state(self, state: PipelineState) -> None:
        """Store a state as this pipeline's."""
        named = replace(state, key=self.pipeline, namespace=self.key.namespace, name=self.recurrence.metadata.name)
        # The first change joins the profile of the key; a frontier is only known after it.
        for _ in range(2):
            self.store.pipelines.change(named, None, lambda _: named, lambda found: found, self.now)

    def write(self) -> None:
        """Bring all FrequencyPlans up to date."""
        self.operator.sync_cache(self.key)
        self.writer.write()
