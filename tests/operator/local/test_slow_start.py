"""`wattloop run` of a training that no example resembles: its first epoch takes as long as thirty others."""

import pytest

from support.local_runs.local_runs import LocalJob
from support.test_sets.parameters import exhaustive_after

pytestmark = pytest.mark.processes

EPOCHS = {16: 15, 32: 10, 64: 12}
RECURRENCES = 6
# The epochs to the target depend on the batch size only. Power limits are measured where a script shows its steps.
TRAINING = """
import wattloop
import nvml_simulator
EPOCHS = {epochs}
with wattloop.Run(batch_size=32, max_epochs=20) as run:
    for epoch in run.epochs():
        if epoch == 0:
            nvml_simulator.occupy(0, work=30 * 3120.0, intensity=0.8)
        for _ in range(10):
            nvml_simulator.occupy(0, work=312.0, intensity=0.8)
            {step}
        run.report(metric=0.9 * (epoch + 1) / EPOCHS[run.batch_size])
"""
OBJECTIVE = {"target": {"metric": "accuracy", "threshold": "0.9"}, "maxEpochs": 20}
BATCH_SIZES = {"default": 32, "candidates": sorted(EPOCHS)}


@pytest.mark.parametrize("step", exhaustive_after(["run.step()", "pass"]), ids=["with steps", "without steps"])
def test_a_training_with_a_dear_first_epoch_reaches_its_target_each_time(local_job: LocalJob, step: str) -> None:
    script = TRAINING.format(epochs=EPOCHS, step=step)
    local_job.job(script, objective=OBJECTIVE, batchSize=BATCH_SIZES)
    assert local_job.run("--recurrences", str(RECURRENCES)) == 0
    rows = local_job.rows()
    assert [row["recurrence"] for row in rows if row["outcome"] == "reached"] == [str(n) for n in range(RECURRENCES)]
    # No start is paid in vain: a stop would cost more than any batch size can save.
    assert len(rows) == RECURRENCES
    assert {row["batch_size"] for row in rows[-2:]} == {"32"}
