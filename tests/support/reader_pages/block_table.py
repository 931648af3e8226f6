"""Where a code block runs that no test of `tests/pages` runs, or why none does.

A row has the page, the begin of the block's first line, and a test or a reason. The test runs the block itself, or
does the same with other data.
"""

from support.reader_pages.pages import BLOCKS, Block

FRAMEWORKS = "tests/integrations/test_examples.py::test_each_line_that_the_page_adds_is_a_line_of_its_example"
FORMATS = (
    "tests/research/commands/test_documented_formats.py::test_the_command_of_an_example_reads_the_files_of_the_page"
)
BY_HAND = "tests/client/pipeline/test_local_profile.py::test_a_script_gets_from_a_pipeline_to_a_plan_and_runs_under_it"
TORCH = "tests/integrations/test_page_blocks.py::test_a_block_with_pytorch_runs"
KUBECTL = "tests/cluster/commands/test_page_commands.py::test_the_commands_of_a_block_succeed"
RESTORED = (
    "tests/cluster/operator/test_restored_jobs.py::"
    "test_a_restored_job_keeps_its_history_and_its_recurrences_and_starts_nothing_again"
)
CHART = "tests/cluster/chart/test_page_values.py::test_the_values_of_a_block_are_those_of_the_chart"
OBJECTS = "tests/cluster/chart/test_page_values.py::test_a_part_of_another_kind_is_accepted"

ELSEWHERE = {
    ("integrations.md", "--- train_"): FRAMEWORKS,
    ("integrations.md", "wattloop run examples/frameworks/pytorch.yaml"): (
        "tests/integrations/test_examples.py::"
        "test_an_example_ends_when_its_target_is_reached_with_the_metric_that_it_logs"
    ),
    ("zero-code.md", "wattloop run examples/unchanged/job.yaml"): (
        "tests/integrations/test_unchanged_scripts.py::test_the_example_of_an_unchanged_script_is_ended_at_its_target"
    ),
    (
        "zero-code.md",
        "reporting:  # of wattloop run alone",
    ): "tests/operator/local/test_metric_file.py::test_each_row_of_a_run_counts_once_however_the_file_is_written",
    ("pipeline.md", "--- examples/pipeline/train.py"): (
        "tests/integrations/test_pipeline_launch.py::test_each_line_that_the_page_adds_is_a_line_of_the_example"
    ),
    ("torch-pipelines.md", "torchrun "): (
        "tests/integrations/test_pipeline_launch.py::test_two_pods_train_one_pipeline"
    ),
    ("pipeline-by-hand.md", "Pipeline("): BY_HAND,
    ("pipeline-by-hand.md", "wattloop plan "): BY_HAND,
    ("pipeline-by-hand.md", "wattloop pipeline analyze"): BY_HAND,
    (
        "simulated-gpus.md",
        "wattloop run ",
    ): "tests/operator/commands/test_simulated_load.py::test_a_declared_load_gives_an_unchanged_script_time_and_energy",
    ("simulated-gpus.md", "wattloop sweep "): (
        "tests/operator/commands/test_sweep.py::test_a_killed_sweep_goes_on_where_it_was"
    ),
    ("file-formats.md", ""): FORMATS,
    ("certificates.md", "openssl "): (
        "tests/cluster/chart/test_without_cluster.py::"
        "test_a_certificate_by_the_documented_commands_is_trusted_by_pods_and_agents"
    ),
    ("client.md", "from wattloop.integrations.pytorch_probe"): TORCH,
    ("integrations.md", "from wattloop.integrations.pytorch"): TORCH,
    ("publishing.md", "if run.warm_start_dir"): TORCH,
    ("probes.md", "import wattloop"): TORCH,
    ("torch-pipelines.md", "from wattloop.integrations.torch_pipelining"): TORCH,
    ("tasks/read-a-saving.md", "wattloop history digits"): KUBECTL,
    ("tasks/why-it-does-not-start.md", "kubectl "): KUBECTL,
    ("tasks/stop-a-worse-job.md", ""): KUBECTL,
    ("configuration.md", "kubectl label"): KUBECTL,
    ("day-two.md", "kubectl wattloop"): KUBECTL,
    ("day-two.md", "kubectl patch"): KUBECTL,
    ("torch-pipelines.md", "kubectl label"): KUBECTL,
    ("day-two.md", "kubectl get rtj,trec,"): RESTORED,
    ("day-two.md", "kubectl --namespace wattloop apply"): RESTORED,
    ("day-two.md", "kubectl get cronjob"): (
        "tests/cluster/commands/test_convert.py::test_a_cron_job_of_the_cluster_becomes_a_job_beside_it"
    ),
    (
        "live-page.md",
        "kubectl wattloop ui --open",
    ): "tests/cluster/commands/test_ui.py::test_an_administrator_sees_all_namespaces_and_changes_as_they_come",
    ("configuration.md", "helm upgrade"): CHART,
    ("configuration.md", "kubectl --namespace wattloop create secret"): CHART,
    ("configuration.md", "operator:"): CHART,
    ("monitoring.md", ""): CHART,
    ("tasks/read-a-saving.md", "tariff:"): CHART,
    ("configuration.md", "egress:"): OBJECTS,
    ("kueue.md", "rules:"): OBJECTS,
}
NOT_RUN = {
    ("quickstart.md", "make install-runtime"): "downloads everything; make demo begins with the same target",
    ("quickstart.md", "python3 -m venv"): "the output of make install-runtime",
    ("concepts/", ""): "a figure",
    ("pipeline.md", "sequenceDiagram"): "a figure",
    ("local-mode.md", "wattloop run "): "the quickstart's command with more recurrences",
    ("live-page.md", "wattloop ui "): "the quickstart's command",
    (
        "live-page.md",
        "kubectl wattloop ui --forward",
    ): "needs a node for the page's pod; tests/cluster/commands/test_ui.py has all until the port is forwarded",
    ("local-mode.md", "run batch@W"): "a moment of a terminal; tests/operator/local/test_live_view.py has the form",
    ("parameters.md", "slope·u"): "a formula",
    ("probes.md", "(η·E"): "a formula",
    (
        "installation.md",
        "make release",
    ): "needs docker and a registry; make test-e2e builds images and installs the chart",
    ("installation.md", "helm upgrade"): "needs a node for the operator; tests/cluster/chart upgrades releases",
    ("installation.md", "helm uninstall"): "removes what a whole cluster has in common",
    ("pipeline-by-hand.md", "wattloop agent"): "needs root and a socket in /run; tests/agent starts agents elsewhere",
}
TABLE = {**ELSEWHERE, **NOT_RUN}


def rows(block: Block) -> list[tuple[str, str]]:
    """The rows of the table that are of a block."""
    return [(page, begin) for page, begin in TABLE if block.page.startswith(page) and block.begin.startswith(begin)]


def blocks_of(test: str) -> list[Block]:
    """The blocks that a test runs by the table."""
    return [block for block in BLOCKS if any(TABLE[row] == test for row in rows(block))]


def blocks_here(*kinds: str) -> list[Block]:
    """The blocks of some kinds that are in no row."""
    return [block for block in BLOCKS if block.kind in kinds and not rows(block)]
