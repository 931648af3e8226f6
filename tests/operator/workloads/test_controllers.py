"""Which versions of Kueue, Trainer and JobSet fit together."""

import pytest

from wattloop_operator.workloads.controllers import JOBSET, KUEUE, TRAINER, Version, version_problems


@pytest.mark.parametrize(
    ("kueue", "trainer"),
    [
        ((0, 14, 4), (2, 0, 1)),
        ((0, 14, 5), (2, 1, 0)),
        ((0, 16, 9), (2, 1, 0)),
        ((0, 17, 3), (2, 2, 0)),
        ((0, 18, 0), (2, 2, 1)),
        ((0, 19, 2), (2, 2, 1)),
        ((0, 20, 0), (2, 3, 0)),
        # No version is known that it was built for, so nothing is said.
        ((0, 99, 0), (2, 0, 1)),
    ],
)
def test_versions_that_were_built_for_each_other_are_no_problem(kueue: Version, trainer: Version) -> None:
    assert list(version_problems({KUEUE: kueue, TRAINER: trainer})) == []


@pytest.mark.parametrize(
    ("kueue", "trainer", "needed"),
    [((0, 14, 4), (2, 1, 0), "2.0.1"), ((0, 17, 0), (2, 1, 0), "2.2.0"), ((0, 19, 2), (2, 3, 0), "2.2.1")],
)
def test_another_trainer_than_kueue_was_built_for_is_named_with_the_one_to_install(
    kueue: Version, trainer: Version, needed: str
) -> None:
    (text,) = version_problems({KUEUE: kueue, TRAINER: trainer})
    assert f"was built for Kubeflow Trainer {needed}, found" in text


def test_a_kueue_that_knows_no_train_jobs_and_an_old_job_set_are_named() -> None:
    (text,) = version_problems({KUEUE: (0, 13, 1), TRAINER: (2, 0, 1)})
    assert text == "Kueue 0.13.1 manages no TrainJobs, which 0.14.0 was the first to do: update Kueue"
    (text,) = version_problems({KUEUE: (0, 19, 2), JOBSET: (0, 10, 1)})
    assert "was built for JobSet 0.12, found 0.10.1" in text


def test_without_kueue_every_version_is_right() -> None:
    assert list(version_problems({TRAINER: (2, 3, 0), JOBSET: (0, 8, 0)})) == []
