"""How each row of Automatic Bassoon, of Zeus and of the notebook in docs/coming-from.md is run."""

from pathlib import Path
from typing import Any

from support.coming_from.ways import Elsewhere, Reason, Way, commands, job, python
from wattloop.run.probe_grid import ProbePlan

EXAMPLE = Elsewhere(
    "tests/integrations/test_training_probe.py::test_the_example_reaches_its_target_and_the_history_shows_its_trials"
)
GRID = Elsewhere(
    "tests/integrations/test_training_probe.py::test_the_whole_grid_is_tried_and_the_training_goes_on_with_the_cheapest"
)
UNCHANGED = Elsewhere(
    "tests/integrations/test_training_probe.py::test_a_training_whose_probe_changes_nothing_goes_on_as_if_there_was_none"
)
SWEEP = Elsewhere("tests/operator/commands/test_sweep.py::test_a_killed_sweep_goes_on_where_it_was")
RUN = Elsewhere(
    "tests/operator/commands/test_run.py::test_the_same_seed_gives_the_same_table_and_a_later_run_continues_it"
)
PLOT = Elsewhere("tests/operator/commands/test_history.py::test_plot_writes_both_plots_to_a_folder_that_it_creates")
HISTORY = Elsewhere(
    "tests/operator/commands/test_history.py::test_costs_use_the_weight_and_the_default_batch_size_of_the_job"
)
MONITOR = Elsewhere("tests/agent/test_gpus_without_counter.py::test_the_command_monitor_integrates_and_shows_the_bound")
STREAM = Elsewhere("tests/agent/test_gpus_without_counter.py::test_subscribers_get_power_at_their_interval")
FORMATS = Elsewhere(
    "tests/research/commands/test_documented_formats.py::test_the_command_of_an_example_reads_the_files_of_the_page"
)
ZEUS_LIMITS = Elsewhere(
    "tests/research/training/test_zeus_power_limit.py::"
    "test_limits_are_measured_in_short_epochs_and_the_best_is_held_until_the_process_ends"
)
ZEUS_WINDOWS = Elsewhere("tests/client/compat/test_zeus.py::test_both_measure_the_same_energy")
PROFILE_OF_ZEUS = Elsewhere(
    "tests/research/training/test_zeus_power_limit.py::test_a_profile_of_zeus_is_read_and_nothing_is_measured"
)
NOTEBOOK_RUNS = Elsewhere("tests/integrations/test_notebook.py::test_the_notebook_runs_and_its_own_assertions_hold")
DIGITS = "examples/digits"
NOT_NEEDED = Reason("nothing of ours takes its place")
OF_THE_SCRIPT = Reason("it is a part of the user's script")
COST = python(
    "from wattloop.energy.cost import CostModel\n"
    "assert CostModel(0.5, 300.0).cost_joules(1000.0, 10.0) == 0.5 * 1000.0 + 0.5 * 300.0 * 10.0"
)
TARIFF = python(
    "from wattloop_operator.domain.tariff import Tariffs\n"
    "Tariffs.from_wire({'currency': 'EUR', 'perKilowattHour': 0.31, 'gramsPerKilowattHour': 380})"
)


def plan(**arguments: Any) -> Way:
    """A plan of probes with these arguments is valid."""

    def run(_folder: Path) -> None:
        ProbePlan(**{"at": [0.5], "batch_sizes": [32, 64], **arguments})

    return run


PROBED = plan(parameters={"learning_rate": [0.1], "dropout": [0.2]})

BASSOON: dict[str, Way] = {
    "python run_shufflenetv2_vx.py": EXAMPLE,
    "the Docker image": Reason("an installation; tests/test_distributions.py installs what is built"),
    "--acc_thresholds": plan(at=[0.3, 0.5, 0.4]),
    "--batch_sizes": plan(batch_sizes=[32, 64]),
    "--learning_rates, --dropout_rates": PROBED,
    "all power limits": plan(power_limits_watts=[300, 275, 250]),
    "the profile before the first epoch": plan(at=[0]),
    "--warmup_iters, --profile_iters": plan(warm_up_steps=2, steps=5),
    "the whole grid each time": plan(max_trials=8, max_time_percent=20),
    "--eta_knob": job(objective={"energyWeightPercent": 70}),
    "--beta_knob": Reason("a constant, with the published value"),
    "--target_metric, --max_epochs": job(objective={"target": {"threshold": "0.9"}, "maxEpochs": 30}),
    "--b_0, --lr_0, --dropout_0": job(batchSize={"default": 32}),
    "--b_min, --b_max": job(batchSize={"candidates": [64, 128, 256]}),
    "--lr_min, --lr_max": PROBED,
    "--num_recurrence": RUN,
    "--seed": RUN,
    "zeus2.profiler: Profiler": GRID,
    "its log_base": RUN,
    "its monitor_path": GRID,
    "its observer_mode": job(mode="Advise"),
    "its profile_warmup_iters": plan(warm_up_steps=2, steps=5),
    "its job, train_dataset": GRID,
    "its train, validate": GRID,
    "its set_seed": UNCHANGED,
    "its copy of the model": UNCHANGED,
    "its profile, run_job": SWEEP,
    "its _save_train_results": RUN,
    "profiler_info.json": EXAMPLE,
    ".history_all.py": EXAMPLE,
    "history.py, zeus2.analyze: HistoryEntry": HISTORY,
    "zeus2.analyze: energy": MONITOR,
    "zeus2.profile_dataloader": GRID,
    "its batch_size, learning_rate": python("from wattloop.run.probe_grid import ProbedConfiguration"),
    "its warmup_iters, measure_iters": GRID,
    "its split, subset_proportion": OF_THE_SCRIPT,
    "its calculate_cost": python('from wattloop.run.probe_grid import Trial\nassert hasattr(Trial, "cost_joules")'),
    "its _set_gpu_power_limit": GRID,
    "+gpu0.power.csv": STREAM,
    "ZEUS_LOG_DIR": RUN,
    "ZEUS_ETA_KNOB": GRID,
    "zeus2.job.Job: dataset": RUN,
    "Job: target_metric": job(objective={"maxEpochs": 30}, batchSize={"default": 32}),
    "Job.scale_lr": job(batchSize={"learningRateScaling": "SquareRoot"}),
    "Job.to_logdir": HISTORY,
    "zeus2.metric: epoch_cost": COST,
    "ZeusCostThresholdExceededException": Elsewhere(
        "tests/integrations/test_huggingface.py::test_a_stop_by_the_operator_ends_the_training_after_the_epoch"
    ),
    "zeus2.master_lr": Elsewhere(
        "tests/research/simulation/test_simulated_parameters.py::test_the_policy_finds_the_best_configuration"
    ),
    "train_lr.py": EXAMPLE,
    "zeus2.shufflenetv2": EXAMPLE,
    "examples/cifar100": job(power={"mode": "Auto"}),
    "examples/neumf": Reason("there is no such example"),
    "analysis, plots": PLOT,
}

ZEUS: dict[str, Way] = {
    "zeus.monitor.energy: ZeusMonitor": ZEUS_WINDOWS,
    "ZeusMonitor(log_file": Elsewhere(
        "tests/client/compat/test_zeus.py::test_the_log_has_the_columns_of_zeus_and_each_window_once"
    ),
    "zeus.monitor.power: PowerMonitor": MONITOR,
    "zeus.monitor.power_streaming": STREAM,
    "zeus.monitor.temperature": NOT_NEEDED,
    "zeus.monitor.price": TARIFF,
    "zeus.monitor.carbon": TARIFF,
    "python -m zeus.monitor energy": MONITOR,
    "python -m zeus.show_env": commands("--version"),
    "zeus.profile: measure": python("from wattloop import PowerLimitOptimizer\nassert PowerLimitOptimizer"),
    "zeus.optimizer.power_limit: GlobalPowerLimitOptimizer": ZEUS_LIMITS,
    "its monitor, optimum_selector": Elsewhere(
        "tests/research/training/test_zeus_power_limit.py::test_the_arguments_are_those_of_zeus"
    ),
    "its profile_path": PROFILE_OF_ZEUS,
    "HFGlobalPowerLimitOptimizer": python(
        'import importlib.util\nassert importlib.util.find_spec("wattloop_research.training.zeus_huggingface")'
    ),
    "OptimumSelector, Energy, Time": Elsewhere(
        "tests/research/training/test_zeus_power_limit.py::test_the_selectors_choose_what_those_of_zeus_choose"
    ),
    "Ready, Warmup": NOT_NEEDED,
    "zeus.callback: Callback": python("from wattloop.compat.zeus import Callback\nCallback().on_train_begin()"),
    "zeus.metric: Metric": STREAM,
    "zeus.utils.metric: zeus_cost": COST,
    "zeus.utils.metric: energy, avg_power": MONITOR,
    "zeus.utils.lr_scaler": Elsewhere(
        "tests/integrations/test_pytorch_probe.py::"
        "test_the_best_learning_rate_is_found_and_equal_values_give_equal_losses"
    ),
    "zeus.utils.framework: sync_execution": ZEUS_WINDOWS,
    "zeus.utils.framework: all_reduce": Reason("the process group is the script's"),
    "zeus.utils.testing": RUN,
    "zeusd": STREAM,
    "zeus.optimizer.batch_size.client": RUN,
    "the batch size server": RUN,
    "zeus.optimizer.pipeline_frequency.optimizer": Elsewhere(
        "tests/client/pipeline/test_local_profile.py::test_a_script_gets_from_a_pipeline_to_a_plan_and_runs_under_it"
    ),
    "zeus.optimizer.pipeline_frequency.frequency_controller": Elsewhere(
        "tests/research/training/test_plan_folder.py::"
        "test_all_plans_of_a_folder_run_in_order_with_a_dump_each_and_then_the_training_ends"
    ),
    "zeus._legacy.simulate": FORMATS,
    "its simulate_one_job": FORMATS,
    "its simulate_one_alibaba_group": Elsewhere(
        "tests/research/simulation/test_arrivals_command.py::"
        "test_the_totals_compare_with_the_default_on_the_same_arrivals"
    ),
    "the assignment of groups": Elsewhere(
        "tests/research/simulation/test_arrivals_command.py::test_a_clusters_trace_is_assigned_by_duration_and_simulated"
    ),
    "zeus._legacy.job": Elsewhere(
        "tests/research/simulation/test_simulate_command.py::test_a_jobs_file_overrides_the_options_of_the_command_line"
    ),
    "zeus._legacy.policy.mab": Elsewhere(
        "tests/research/commands/test_replay_command.py::test_zeus_shows_stage_decision_and_posterior_of_each_step"
    ),
    "zeus._legacy.policy.optimizer: PruningGTSBatchSizeOptimizer": Elsewhere(
        "tests/research/commands/test_replay_command.py::test_one_arm_left_is_decided"
    ),
    "its concurrency": Elsewhere(
        "tests/research/simulation/test_overlapping_recurrences.py::"
        "test_one_recurrence_at_a_time_is_simulated_as_in_sequence"
    ),
    "zeus._legacy.policy.optimizer: JITPowerLimitOptimizer": Elsewhere(
        "tests/research/simulation/test_simulate_command.py::test_the_first_attempt_is_the_profiled_default"
    ),
    "summary_train.csv": FORMATS,
}

NOTEBOOK: dict[str, Way] = {
    "reserve.ipynb": RUN,
    "notebooks/00-data.ipynb": NOTEBOOK_RUNS,
    "notebooks/01-train.ipynb": Elsewhere(
        "tests/integrations/test_keras.py::test_each_epoch_is_reported_once_and_the_training_ends_at_the_target"
    ),
    "its plots of accuracy and loss": PLOT,
    "notebooks/02-energy.ipynb": ZEUS_WINDOWS,
    "measurement.time": SWEEP,
    "NameError and time.time()": RUN,
    "ValueError of a window": NOT_NEEDED,
    "TrainToAccuracy": job(objective={"target": {"threshold": "0.9", "consecutiveEvaluations": 3}}),
    "validation_split": OF_THE_SCRIPT,
    "at most 500 epochs": job(objective={"maxEpochs": 500}),
    "the loop over learning rates": python(
        "from support.coming_from.ways import ROOT\n"
        "from wattloop.commands.main import main\n"
        f'assert main(["validate", str(ROOT / "{DIGITS}" / "learning-rate.yaml")]) == 0'
    ),
    "the loop over batch sizes": SWEEP,
    "metrics_vs_lr, metrics_vs_bs: batch_size": SWEEP,
    "metrics_vs_lr, metrics_vs_bs: learning_rate": Elsewhere(
        "tests/operator/commands/test_run_parameters.py::test_the_training_gets_the_chosen_value"
    ),
    "the bar plots": PLOT,
    "notebooks/03-reproduce.ipynb": OF_THE_SCRIPT,
    "MIN_VALIDATION_ACC": job(objective={"target": {"threshold": "0.9"}, "maxEpochs": 20}),
    "nvmlDeviceSetPowerManagementLimit": SWEEP,
    "GlobalPowerLimitOptimizer, MaxSlowdownConstraint": ZEUS_LIMITS,
    "random.sample of 5 pairs": SWEEP,
    "metrics: time, energy": SWEEP,
    "plt.scatter": PLOT,
    "ml_energy.ipynb, Makefile": NOTEBOOK_RUNS,
}
