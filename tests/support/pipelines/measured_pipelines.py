"""Pipelines of the published profiles in tests/data/perseus."""

from pathlib import Path

from wattloop_planner.frequency.pipeline.graph import schedule_graph
from wattloop_planner.frequency.pipeline.instruction_profiles import Profile
from wattloop_planner.frequency.pipeline.planning_problem import Problem, pipeline_problem
from wattloop_planner.frequency.pipeline.profile_file import read_profile
from wattloop_planner.frequency.pipeline.schedules import SCHEDULES

PERSEUS = Path(__file__).resolve().parents[2] / "data" / "perseus"
# Name: file, stages, blocking power.
MEASURED = {
    "gpt3": ("stage_profile/gpt3-175b+a100_sxm_bf16.csv", 8, 83.64),
    "bloom": ("stage_profile/bloom+a40_bf16.csv", 8, 70.38),
    "gpt3-a40": ("stage_profile/gpt3-175b+a40_bf16.csv", 8, 70.38),
    "bloom-a100": ("stage_profile/bloom+a100_sxm_bf16.csv", 8, 83.64),
    "bert": ("reconstructed/A100_bert-huge-uncased_pp4_nmb32.csv", 4, 83.64),
    "wide-resnet": ("reconstructed/A100_wide-resnet101_8_pp4_nmb24.csv", 4, 83.64),
}


def measured_file(name: str) -> Path:
    """The CSV file of a published profile."""
    return PERSEUS / MEASURED[name][0]


def measured_problem(name: str, microbatches: int, stages: int | None = None) -> Problem:
    """A 1F1B pipeline with a published profile, or with its first stages."""
    _, all_stages, power = MEASURED[name]
    profile = read_profile(measured_file(name))
    stages = stages or all_stages
    options_of_stages = {key: options for key, options in profile.options.items() if key[0] < stages}
    graph = schedule_graph(SCHEDULES["1f1b"](stages, microbatches))
    return pipeline_problem(graph, Profile(profile.source, options_of_stages), power)
