"""After any accepted report an outcome is written, and the next recurrence starts."""

import json

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from support.backends.model_backend import KEY, ModelBackend, job
from wattloop.wire import training_messages
from wattloop.wire.training_messages import GpuEnergy, LimitMeasurement, Report
from wattloop_operator.domain.snapshot import Failure
from wattloop_operator.driver import reconcile
from wattloop_operator.history.job_history import JobHistory
from wattloop_operator.history.rows import rows_of
from wattloop_operator.reconcile.attempt.report_effect import progress_after


def numbers(minimum: float, maximum: float) -> st.SearchStrategy[float]:
    """The bounds, numbers near them, and usual numbers."""
    usual = [value for value in (0.0, 0.5, 1.0, 400.0) if minimum <= value <= maximum]
    return st.sampled_from([minimum, maximum, maximum / 3, *usual]) | st.floats(minimum, maximum)


@st.composite
def gpus(draw: st.DrawFn) -> GpuEnergy:
    counter = st.sampled_from([0, 1, training_messages.MAX_ENERGY_MILLIJOULES]) | st.integers(0, 10**9)
    energy = sorted(draw(st.tuples(counter, counter)))
    clock = sorted(draw(st.tuples(*[numbers(0, training_messages.MAX_TIME_SECONDS)] * 2)))
    return GpuEnergy(
        draw(st.sampled_from(["GPU-0", "GPU-1", f"MIG-GPU-{'f' * 36}/127/127"])),
        energy[0],
        energy[1],
        clock[0],
        clock[1],
    )


LIMITS = st.builds(
    LimitMeasurement,
    numbers(1, training_messages.MAX_LIMIT_WATTS),
    numbers(training_messages.MIN_MEASURED, training_messages.MAX_NUMBER),
    numbers(training_messages.MIN_MEASURED, training_messages.MAX_TIME_SECONDS),
    numbers(training_messages.MIN_MEASURED, training_messages.MAX_NUMBER),
)
REPORTS = st.builds(
    Report,
    process=st.sampled_from("ab"),
    sequence=st.integers(1, 5) | st.just(2**63 - 1),
    epoch=numbers(0, training_messages.MAX_NUMBER),
    metric=st.none() | numbers(-training_messages.MAX_NUMBER, training_messages.MAX_NUMBER),
    evaluations=st.integers(0, 5) | st.just(2**63 - 1),
    consecutive_reached=st.none() | st.integers(0, 5) | st.just(2**63 - 1),
    gpus=st.lists(gpus(), max_size=3, unique_by=lambda gpu: gpu.uuid).map(tuple),
    gpu_product=st.sampled_from(["", "NVIDIA A100", "~" * training_messages.MAX_PRODUCT_CHARACTERS]),
    max_power_limit_watts=numbers(0, training_messages.MAX_POWER_WATTS),
    power_limit_watts=st.none() | numbers(0, training_messages.MAX_LIMIT_WATTS),
    power_limit_refusal=st.sampled_from(["", "~" * training_messages.MAX_REFUSAL_CHARACTERS]),
    profile=st.lists(LIMITS, max_size=3, unique_by=lambda limit: round(limit.power_limit_watts)).map(tuple),
    finished=st.booleans(),
    rank=st.integers(0, 2),
)


@settings(deadline=None, max_examples=settings().max_examples // 4, phases=[Phase.explicit, Phase.generate])
@given(st.lists(st.lists(REPORTS, max_size=3), min_size=1, max_size=3), st.sampled_from([None, *Failure]))
def test_no_accepted_report_breaks_the_reconciler(reports: list[list[Report]], failure: Failure | None) -> None:
    backend = ModelBackend(job())
    backend.advance(3600)
    reconcile(backend, KEY, backend.clock)
    for of_attempt in reports:
        (name,) = backend.running
        backend.run_workload(name)
        for sent in of_attempt:
            report = Report.from_json(json.loads(json.dumps(sent.to_json())))
            recurrence = backend.recurrences[name]
            backend.merge(recurrence, progress_after(recurrence, report))
            reconcile(backend, KEY, backend.clock)
        if name in backend.running:
            backend.end_workload(name, failure)
        reconcile(backend, KEY, backend.clock)
        assert name in backend.outcomes
        backend.advance(3600)
        reconcile(backend, KEY, backend.clock)
        if not backend.running:  # every batch size has crashed too often
            return
    snapshot = backend.snapshot(KEY)
    assert snapshot is not None
    assert len(rows_of(JobHistory.of_snapshot(snapshot))) == len(reports)
