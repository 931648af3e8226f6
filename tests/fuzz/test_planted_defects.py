"""Each new target of `make fuzz` finds the defects that are planted into its part."""

import pytest

from support.fuzzing.campaign import open_target
from support.fuzzing.planted import DEFECTS, PlantedDefect, failing_input
from support.test_sets.parameters import exhaustive_after

# Of each target, the usual set has those that are soon found.
LATE = {
    "a plan that is replaced as a rank finishes",
    "ranks that contradict each other",
    "no bound on levels",
    "clocks that GPUs lack",
}
SOONEST_FIRST = sorted(DEFECTS, key=lambda each: each.name in LATE)


@pytest.mark.parametrize(
    "defect",
    exhaustive_after(SOONEST_FIRST, usual=len(DEFECTS) - len(LATE)),
    ids=[f"{each.target}: {each.name}" for each in SOONEST_FIRST],
)
def test_a_planted_defect_is_found_and_its_input_passes_without_it(defect: PlantedDefect) -> None:
    target = open_target(defect.target)
    try:
        with defect.planted():
            data = failing_input(target)
        target.check(data)
    finally:
        target.close()
