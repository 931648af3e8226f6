"""The strangers: each script with its target and batch sizes, once for the local mode and for the node.

Seeds differ from run to run, so each threshold was chosen from the epochs of forty seeds at each batch size: the one
that is compared must be cheaper than the default by more than they differ.
"""

import math
import statistics
from collections.abc import Sequence

from support.strangers.stranger import Stranger

MINIMIZE = {"direction": "Minimize"}
LOGS = {"reporting": {"source": "Logs"}}

# 9 to 11 epochs of 256 samples a step. It reaches 0.95 after 1 to 6, so that two runs' costs differ by chance.
SLOW_START = Stranger("slow_start.py", threshold="0.96", default=256)
NOISY_METRIC = Stranger("noisy_metric.py", threshold="0.9")
ACCUMULATION = Stranger("accumulation.py", threshold="0.87")
CRASH_LATE = Stranger("crash_late.py", threshold="0.85", default=64)
GROWING_DATA = Stranger("growing_data.py", threshold="0.8", default=250, candidates=(25, 50, 125, 250, 500), grows=True)
# Four sizes more would be measured at each power limit, which costs more than seven runs save.
TWO_RANKS = Stranger("two_ranks.py", candidates=(64, 128, 256), gpus=2)
# Without a pace it prints all of its epochs before the operator reads the first: all are in its cost.
LOWER_IS_BETTER = Stranger(
    "lower_is_better.py", metric="val_loss", threshold="0.02", default=64, target=MINIMIZE, spec=LOGS, pace=0.05
)
PLATEAU = Stranger("plateau.py", threshold="0.95", candidates=(64, 128), max_epochs=40)
PROCESSOR_ONLY = Stranger(
    "processor_only.py", metric="loss", threshold="1.95", default=50, candidates=(25, 50, 100), target=MINIMIZE, gpus=0
)
CRASH_AT_ONCE = Stranger("crash_at_once.py")
COMPILED_TORCH = Stranger(
    "compiled_torch.py",
    threshold="0.8",
    default=64,
    candidates=(32, 64, 128),
    arguments=("--batch_size=$(WATTLOOP_BATCH_SIZE)", "--num_epochs=$(WATTLOOP_MAX_EPOCHS)"),
    spec=LOGS,
)

LEARNERS = (SLOW_START, NOISY_METRIC, ACCUMULATION, CRASH_LATE, GROWING_DATA, TWO_RANKS, LOWER_IS_BETTER)
"""The strangers that reach their targets on a GPU; each must cost at most what its default costs."""
RECURRENCES = 7
"""After so many a learner has learned."""
COMPARED = 3
"""So many of the last recurrences are compared with as many of the default."""
MAX_RATIO = 1.05
# The standard error of a median is so many times that of the mean.
EFFICIENCY_OF_MEDIAN = 1.25


def compared_cost(costs: Sequence[float]) -> float:
    """The median cost of the last recurrences: the metric's noise is no cost of the choice."""
    return sorted(costs[-COMPARED:])[COMPARED // 2]


def cost_error(costs: Sequence[float]) -> float:
    """Standard error of `compared_cost`, where runs are timed by a real clock beside other work."""
    return EFFICIENCY_OF_MEDIAN * statistics.stdev(costs[-COMPARED:]) / math.sqrt(COMPARED)


def default_recurrences(stranger: Stranger) -> int:
    """How many recurrences of the default are needed, the last of which are compared."""
    return RECURRENCES if stranger.grows else COMPARED
