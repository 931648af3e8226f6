"""How each row of Perseus and Lowtime in docs/coming-from.md is run."""

from support.coming_from.ways import Elsewhere, Reason, Way, commands, job, python

PLAN = "plan --profile @profile.csv --stages 2 --microbatches 2"
EVALUATE = "pipeline evaluate @data --output @evaluation"
SERIES = Elsewhere(
    "tests/research/training/test_plan_folder.py::"
    "test_all_plans_of_a_folder_run_in_order_with_a_dump_each_and_then_the_training_ends"
)
BASELINE = Elsewhere(
    "tests/research/training/test_baseline.py::test_one_limit_for_all_and_then_one_a_stage_are_measured_in_one_training"
)
BY_HAND = Elsewhere(
    "tests/client/pipeline/test_local_profile.py::test_a_script_gets_from_a_pipeline_to_a_plan_and_runs_under_it"
)
EXPORT = Elsewhere(
    "tests/research/commands/test_profile_command.py::test_an_export_becomes_a_profile_that_plans_the_pipeline"
)
# An iteration of one stage at free clocks: no agent is needed.
ITERATION = """
from wattloop.pipeline import Pipeline
with Pipeline(stage=0, stages=1, microbatches=1, rank=0, data_rank=0, pipeline_rank=0, tensor_rank=0, data_parallel=1,
              model="gpt", plan=[("forward", 1410), ("backward", 1200)]) as pipeline:
    with pipeline.iteration():
        for kind in ("forward", "backward"):
            with pipeline.instruction(kind, microbatch=0):
                pass
    assert [each.text for each in pipeline.instructions] == ["forward:0:0", "backward:0:0"]
"""

WAYS: dict[str, Way] = {
    "perseus.utils.state.load_prof": commands("pipeline analyze @runs --format json"),
    "perseus.utils.analysis.total_time_and_energy": commands("pipeline analyze @runs --warm-up 2"),
    "the comparison with all-maximum by hand": commands("pipeline analyze @runs --base @base --warm-up 2"),
    "evaluation.ipynb, tables 3 and 4": commands(
        EVALUATE, makes=("evaluation/intrinsic.csv", "evaluation/stragglers.csv")
    ),
    "evaluation.ipynb, figures 7 and 8, table 6": commands(EVALUATE, makes=("evaluation/emulation.csv",)),
    "evaluation.ipynb, figure 9": commands(EVALUATE, makes=("evaluation/frontier-*.png",)),
    "plot.DATA": commands("pipeline evaluate @data"),
    "plot.Workload, the name of an experiment": python(
        "from wattloop_research.training.experiment_name import parse_experiment_name\n"
        'found = parse_experiment_name("framework+model+partition+dp1+pp4+tp1+mbs4+nmb128+scheduler")\n'
        "assert (found.workload.ranks, found.workload.microbatches) == (4, 128)"
    ),
    "InstructionProfiler of the server": BY_HAND,
    "InstructionProfiler: minimum_power_state": Elsewhere(
        "tests/research/commands/test_profile_command.py::test_clocks_at_which_no_instruction_saves_are_left_out"
    ),
    "merak/scripts/generate_profile_csv.py": commands(
        "pipeline profile --from @profiled --output @found.csv", makes=("found.csv",)
    ),
    "its --profile_dir, --num_microbatches": EXPORT,
    "its warmup_iters": Elsewhere(
        "tests/research/commands/test_profile_command.py::test_rounds_that_warm_up_are_left_out"
    ),
    "instructions-N.csv, time-energy-N.csv": EXPORT,
    "PointSolution of the server, with a folder": SERIES,
    "PointSolution, with a file": BY_HAND,
    "PointSolution: warmup_iters": SERIES,
    "num_prof_steps": SERIES,
    "[profiling-done], which ends": SERIES,
    "the server's dump folder": SERIES,
    "N.prof.json, N.sched.json": SERIES,
    "freqs_pipeline_N.py": commands(
        f"{PLAN} --output @plans",
        "plan evaluate --profile @profile.csv --stages 2 --microbatches 2 @plans/freqs_pipeline_00000.py",
    ),
    "lowtime/scripts/perseus.py, examples/driver.py": commands(
        f"{PLAN} --output @plans", makes=("plans/freqs_pipeline_00000.py",)
    ),
    "its --inst-profile, --num-stages": commands(f"{PLAN} --output @plans"),
    "its --gpu-type": commands(f"{PLAN} --output @plans --gpu-product NVIDIA-A40 --blocking-power 70.38"),
    "its --plot-interval": commands(f"{PLAN} --output @plans --pictures 3", makes=("plans/pipeline_*.png",)),
    "lowtime/scripts/sample.py": commands(
        f"{PLAN} --output @plans --plans 40",
        "plan sample @plans @sampled -n 300",
        makes=("sampled/freqs_pipeline_*.py",),
    ),
    "lowtime/scripts/envpipe.py": commands(
        f"{PLAN} --output @plans --baselines",
        "plan evaluate --profile @profile.csv --stages 2 --microbatches 2 @plans/envpipe/freqs_pipeline_00000.py",
    ),
    "iteration_time_energy.csv, pipeline_N.png": commands(
        f"{PLAN} --output @plans --pictures", makes=("plans/iteration_time_energy.csv", "plans/pipeline_00000.png")
    ),
    "scripts/run_server.sh": Reason("nothing of ours is started"),
    "AllMaxFrequency": SERIES,
    "TwoFrequencies": python(ITERATION),
    "ZeusGlobalPowerLimit, ZeusLocalPowerState: their measured points": BASELINE,
    "their dumps and tables": BASELINE,
    "ZeusGlobalPowerLimit: the limit of least cost": job(power={"mode": "Auto"}),
    "make_3d_parallel, PointSolution3D": Elsewhere(
        "tests/integrations/test_torch_pipelining.py::test_each_rank_finds_its_place"
    ),
    "zeus.optimizer.pipeline_frequency.PipelineFrequencyOptimizer": python(ITERATION),
    "its on_step_begin, on_step_end": python(ITERATION),
    "its on_instruction_begin, on_instruction_end": python(ITERATION),
    "its rank, dp_rank": python(ITERATION),
    "its server_url, job_metadata": python(ITERATION),
    "ZEUS_PFO_SCHEDULER, ZEUS_PFO_SCHEDULER_ARGS": job(power={"frequencyPlan": {"name": "mine"}}),
    "ZEUS_PFO_DUMP_DATA, ZEUS_PFO_DUMP_DIR": SERIES,
    "lowtime.operation.CandidateExecutionOptions": python(
        "from wattloop_planner.frequency import Option, Profile\n"
        'Profile("mine", {(0, "forward"): (Option(1410, 0.1, 20.0),)})'
    ),
    "lowtime.cost_model.ExponentialModel": Reason("nothing of ours takes its place"),
    "lowtime.perseus.instruction.Forward": commands(
        f"{PLAN} --schedule early-recompute-1f1b --output @plans", makes=("plans/freqs_pipeline_00000.py",)
    ),
    "lowtime.perseus.schedule.Synchronous1F1B": python(
        "from wattloop_planner.frequency import EarlyRecomputation, OneForwardOneBackward\n"
        "assert EarlyRecomputation(2, 2).stages == OneForwardOneBackward(2, 2).stages == 2"
    ),
    "a graph of one's own": commands("plan --profile @profile.csv --graph @graph.json --output @plans"),
    "lowtime.solver.PhillipsDessouky": python(
        "from support.pipelines.measured_pipelines import measured_problem\n"
        "from wattloop_planner.frequency import plan_pipeline, relax\n"
        'problem = measured_problem("gpt3", 2)\n'
        "assert plan_pipeline(problem, 5).plans and len(relax(problem).times_seconds)"
    ),
    "lowtime.perseus.visualizer.PipelineVisualizer": commands(
        f"{PLAN} --output @plans --pictures", makes=("plans/pipeline_*.svg",)
    ),
}
