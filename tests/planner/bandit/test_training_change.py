"""After another image or template a change of the epochs is detected sooner; without one it costs nothing."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.test_sets.parameters import exhaustive_after
from wattloop_planner.bandit import posterior as posterior_module
from wattloop_planner.bandit.configuration import ConfigurationSpace
from wattloop_planner.bandit.policy import Decision, DecisionContext, PartialObservation, Policy
from wattloop_planner.bandit.posterior import Posterior
from wattloop_planner.bandit.thompson_sampling import ThompsonSamplingPolicy
from wattloop_planner.observations import Observation, Outcome
from wattloop_research.simulation.overlapping_recurrences import simulate
from wattloop_research.simulation.simulation_options import options_of_command
from wattloop_research.simulation.simulation_summary import costs_by_recurrence
from wattloop_research.simulation.tasks import TraceFiles, tasks_of

SPACE = ConfigurationSpace((16, 32, 64, 128), 64)


def run(epochs: float, image: str = "", **changes: Any) -> Observation:
    observation = Observation(0, 0, 64, Outcome.REACHED, epochs, 100 * epochs, epochs, 200.0, image_digest=image)
    return replace(observation, **changes)


def posterior_after(runs: Sequence[Observation], noise: float = 0.1) -> Posterior:
    posterior = Posterior(SPACE, 1.0)
    with mock.patch.object(posterior_module, "NOISE_SD", noise):
        for index, each in enumerate(runs):
            posterior.update(replace(each, recurrence=index))
    return posterior


def runs_to_detection(usual: Sequence[Observation], deviating: Observation) -> int:
    for count in range(1, 20):
        if posterior_after([*usual, *[deviating] * count]).changes:
            return count
    return 20


# The spread is 10 %: 15 and 13 epochs deviate by 4 and 2.6 standard deviations, 7 by 3.6.
USUAL = [run(epochs, "old") for epochs in (8.86, 11.29, 10) * 10]


@pytest.mark.parametrize(
    ("epochs", "usually", "after_change"), [(15, 3, 2), (13, 6, 3), (12, 20, 6), (7, 4, 2), (11, 20, 20)]
)
def test_fewer_deviating_runs_suffice_after_another_image(epochs: float, usually: int, after_change: int) -> None:
    assert runs_to_detection(USUAL, run(epochs, "old")) == usually
    assert runs_to_detection(USUAL, run(epochs, "new")) == after_change


def test_another_template_is_a_hint_like_another_image() -> None:
    usual = [replace(each, template_digest="0a") for each in USUAL]
    assert runs_to_detection(usual, run(13, "old", template_digest="0b")) == 3


@pytest.mark.parametrize(
    "changes", [{"image_digest": ""}, {"from_other_job": True, "image_digest": "new"}, {"image_digest": "old"}]
)
def test_an_unknown_image_and_that_of_another_job_are_no_hint(changes: dict[str, Any]) -> None:
    assert runs_to_detection(USUAL, replace(run(13), **changes)) == 6


def test_an_image_that_becomes_known_is_no_hint() -> None:
    assert runs_to_detection([replace(each, image_digest="") for each in USUAL], run(13, "new")) == 6


def test_the_new_regime_begins_with_the_new_image() -> None:
    # Two runs deviate slightly before the new image, which are not of the new regime.
    before = [run(11.5, "old"), run(8.7, "old")]
    posterior = posterior_after([*USUAL, *before, run(14, "new"), run(14, "new")])
    assert posterior.changes == 1
    assert posterior.runs[2] == 2
    assert np.exp(posterior.epochs()[0][2]) == pytest.approx(14, rel=0.05)
    # The wider prior is that of any other change.
    assert posterior.epochs()[1][0, 0] > posterior_after(USUAL).epochs()[1][0, 0]


def test_images_that_change_nothing_weaken_the_hint_until_a_change_is_detected() -> None:
    nightly = [replace(each, image_digest=str(night)) for night, each in enumerate(USUAL)]
    assert runs_to_detection(nightly, run(13, "new")) == runs_to_detection(USUAL, run(13, "old"))
    changed = [*nightly, *[run(13, "new")] * 9]
    assert posterior_after(changed).changes == 1
    assert posterior_after([*changed, run(20, "newer")]).changes == 2


@given(st.lists(st.tuples(st.floats(9.5, 10.5), st.integers(0, 5)), min_size=2, max_size=40))
def test_images_change_nothing_while_runs_are_alike(runs: list[tuple[float, int]]) -> None:
    with_images = posterior_after([run(epochs, f"image-{image}") for epochs, image in runs])
    without = posterior_after([run(epochs) for epochs, _ in runs])
    assert with_images.changes == 0
    for one, other in zip(with_images.epochs(), without.epochs(), strict=True):
        assert np.array_equal(one, other)


@dataclass
class ImageEachNight:
    """Policy `thompsonSampling` of a job that runs another image in each recurrence."""

    policy: ThompsonSamplingPolicy = field(default_factory=lambda: ThompsonSamplingPolicy(describe_arms=False))

    def decide(self, context: DecisionContext) -> Decision:
        return self.policy.decide(_with_images(context))

    def review(self, context: DecisionContext, decision: Decision, measured: PartialObservation) -> float | None:
        return self.policy.review(_with_images(context), decision, measured)


def _with_images(context: DecisionContext) -> DecisionContext:
    images = tuple(replace(each, image_digest=f"image-{each.recurrence}") for each in context.observations)
    return replace(context, observations=images)


@pytest.mark.parametrize(
    ("dataset", "network", "optimizer", "target", "default"),
    exhaustive_after(
        [
            ("cifar100", "shufflenetv2", "adadelta", "0.6", "1024"),
            ("imagenet", "resnet50", "adadelta", "0.65", "256"),
            ("movielens-1m", "ncf", "adam", "0.41", "1024"),
        ]
    ),
)
def test_a_new_image_each_night_costs_at_most_two_percent(
    zeus_traces: Path, dataset: str, network: str, optimizer: str, target: str, default: str
) -> None:
    options = options_of_command(
        {
            "job": dataset,
            "gpu": "a40",
            "train": str(zeus_traces / "summary_train.csv"),
            "power": str(zeus_traces / "summary_power_a40.csv"),
            "dataset": dataset,
            "network": network,
            "optimizer": optimizer,
            "target_metric": target,
            "max_epochs": "100",
            "default_batch_size": default,
            "recurrences": "100",
            "seeds": "1-3",
        }
    )
    tasks = tasks_of(options, TraceFiles())

    def cost(make: Callable[[], Policy]) -> float:
        runs = (costs_by_recurrence(100, list(simulate(each.scenario, make(), each.seed))) for each in tasks)
        return sum(map(sum, runs))

    assert cost(ImageEachNight) <= 1.02 * cost(partial(ThompsonSamplingPolicy, describe_arms=False))
