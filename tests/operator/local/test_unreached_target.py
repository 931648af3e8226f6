"""`wattloop run` of a stranger's script whose metric ends below the threshold at every batch size."""

import pytest

from support.local_runs.local_runs import LocalJob

pytestmark = pytest.mark.processes

# A larger batch size has cheaper epochs. The smallest one costs most and ends worst. It knows nothing of Wattloop.
SCRIPT = """
import math, sys, time
import nvml_simulator

ENDS = {16: 0.62, 32: 0.808, 64: 0.81, 128: 0.70}
batch_size = int(sys.argv[1])
for epoch in range(1, 41):
    nvml_simulator.occupy(0, work=400.0 * (1 + 128 / batch_size), intensity=0.6)
    accuracy = ENDS[batch_size] * (1 - math.exp(-epoch / 3))
    print(f"epoch={epoch} accuracy={accuracy:.5f}", flush=True)
    # Time for the request to stop, which a busy machine sends late.
    time.sleep(0.1 if epoch < 20 else 0.4)
"""


def test_a_target_that_no_size_reaches_ends_attempts_early_at_the_cheapest_size_that_comes_closest(
    local_job: LocalJob, capsys: pytest.CaptureFixture[str]
) -> None:
    container = {"name": "train", "image": "none", "command": ["python", "train.py", "$(WATTLOOP_BATCH_SIZE)"]}
    local_job.job(
        SCRIPT,
        objective={"target": {"metric": "accuracy", "threshold": "0.97"}, "maxEpochs": 40},
        batchSize={"default": 128, "candidates": [16, 32, 64, 128]},
        reporting={"source": "Logs"},
        power={"mode": "None"},
        template={"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}},
    )
    assert local_job.run("--recurrences", "5") == 0
    first, *others = local_job.rows()
    assert (first["outcome"], first["epochs"]) == ("exhausted", "40")
    assert {row["outcome"] for row in others} == {"plateaued"}
    assert max(float(row["epochs"]) for row in others) < 40
    assert {row["recurrence"] for row in local_job.rows() if row["attempt"] != "0"} <= {"0"}
    assert (others[-1]["recurrence"], others[-1]["batch_size"]) == ("4", "64")
    message = capsys.readouterr().err
    assert "The target was not reached: none of " in message
    assert "; the best was 0.80" in message
    assert "; a threshold of 0.80" in message
    assert " would be reached, at the lowest cost with batch size 64" in message
