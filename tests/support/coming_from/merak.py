"""How each row of Merak in docs/coming-from.md is run."""

from support.coming_from.ways import Elsewhere, Reason, Way, commands, trainer

GPT = ("gpt3-small", "4", "8")
PUBLISHED = "tests/integrations/test_published_models.py::"
TRAINED = Elsewhere(f"{PUBLISHED}test_losses_are_the_same_with_each_number_of_stages_and_each_schedule")
PROFILED = Elsewhere(
    f"{PUBLISHED}test_a_profile_of_few_microbatches_has_each_instruction_at_each_clock_of_the_chosen_gpus"
)
SERIES = Elsewhere(f"{PUBLISHED}test_plans_and_a_baseline_of_the_trainer_are_an_experiment_with_a_saving")
NOT_NEEDED = Reason("nothing of ours takes its place")


def dry_run(*options: str, ranks: int = 4) -> Way:
    """The stages of a model with these options."""
    return trainer(*GPT, *options, "--dry-run", ranks=ranks)


WAYS: dict[str, Way] = {
    "run.sh MODEL MICROBATCH_SIZE": TRAINED,
    "NNODES, NODE_RANK, MASTER_ADDR": Elsewhere(
        f"{PUBLISHED}test_two_nodes_train_one_pipeline_under_early_recomputation"
    ),
    "CUDA_VISIBLE_DEVICES=0,1": PROFILED,
    "names of models": trainer("--list"),
    "config.load_config_and_model": Elsewhere(f"{PUBLISHED}test_the_layers_have_the_parameters_of_the_catalogue"),
    "config.count_parameters": Elsewhere(f"{PUBLISHED}test_the_layers_have_the_parameters_of_the_catalogue"),
    "utils.load_wikitext": dry_run("--data", "texts"),
    "--data_path of images": trainer("wide-resnet50_2", "4", "8", "--dry-run"),
    "--validation-split-percentage": NOT_NEEDED,
    "--pp, --dp": dry_run("--pp", "2", "--dp", "2"),
    "--tp": dry_run("--tp", "1"),
    "Merak.init(pp, tp, dp)": TRAINED,
    "--partition_method uniform": Elsewhere(
        "tests/examples/test_partitions.py::test_a_custom_partition_is_the_one_that_its_name_states"
    ),
    "--partition_method autopipe": dry_run("--partition-method", "flops"),
    "--shard_count": dry_run("--shard-count", "8", "--partition-method", "uniform"),
    "--num_layers, --num_transformers": dry_run("--blocks", "6", "--sequence-length", "64"),
    "autoshard.convert_to_sequential": Elsewhere(
        "tests/examples/test_partitions.py::test_shards_cover_all_layers_and_are_as_many_as_asked_at_most"
    ),
    "--cache_sharding, --cache_dir": NOT_NEEDED,
    "PipelineModule, its _partition_layers": TRAINED,
    "tie_modules": TRAINED,
    "--per_device_train_batch_size": dry_run(),
    "--max_steps": dry_run("--max-steps", "3"),
    "--learning_rate, --seed": dry_run("--learning-rate", "0.001", "--seed", "3"),
    "--fp16, --loss_scale": dry_run("--dtype", "bfloat16"),
    "--init_method_std": TRAINED,
    "--train_schedule 1f1b": dry_run("--train-schedule", "1f1b"),
    "--train_schedule early_recompute_1f1b": dry_run("--train-schedule", "early_recompute_1f1b"),
    "--train_schedule ds_default": Elsewhere(
        "tests/integrations/test_torch_pipelining.py::test_each_step_is_an_iteration_of_the_instructions_known_in_advance"
    ),
    "--activation_checkpointing": dry_run("--no-activation-checkpointing"),
    "--checkpoint_num_layers": dry_run("--activation-checkpointing"),
    "--split_inputs, --parallel_vocab": NOT_NEEDED,
    "--prescale_gradients": Elsewhere(
        f"{PUBLISHED}test_two_copies_of_a_pipeline_that_measures_its_balance_train_one_model"
    ),
    "--save, --finetune": NOT_NEEDED,
    "--profile true": PROFILED,
    "--num_prof_steps": SERIES,
    "--num_warmup_steps": PROFILED,
    "the end of a profile": dry_run("--profile-clocks", "1410,1110"),
    "merak+MODEL+METHOD": PROFILED,
    "--wall_clock_breakdown": SERIES,
    "--export_timing_csv true": commands("pipeline profile --from @profiled --output @found.csv", makes=("found.csv",)),
    "--perseus_url": Elsewhere("tests/integrations/test_pipeline_launch.py::test_two_pods_train_one_pipeline"),
    "--model_name, job_metadata": Elsewhere(
        "tests/examples/test_model_options.py::"
        "test_model_partition_and_degrees_of_the_job_s_spec_name_profile_folder_and_key"
    ),
    "PerseusOptimizer": TRAINED,
}
