"""How Wattloop receives the metric of a training: from the script itself, or from what it writes."""

from enum import StrEnum

from pydantic import Field

from wattloop_operator.api.model import ApiModel, Rule

MAX_PATTERN_CHARACTERS = 512
MAX_PATH_CHARACTERS = 1024
# A cluster's operator reads the logs of pods, and no files in them.
FILE_NOT_IN_CLUSTER = (
    "spec.reporting.source File is read by wattloop run alone: in a cluster no process of Wattloop has access to files "
    "of a pod; let the container print the rows, such as command: [sh, -c, 'touch metrics.jsonl; tail -n 0 -F "
    "metrics.jsonl & exec python train.py'], and set source: Logs, with a pattern for comma-separated values"
)


class ReportingSource(StrEnum):
    """How Wattloop receives the metric."""

    PUSH = "Push"
    LOGS = "Logs"
    FILE = "File"
    KUBEFLOW_TRAINER = "KubeflowTrainer"
    TERMINATION_MESSAGE = "TerminationMessage"


class Reporting(ApiModel):
    """How Wattloop receives the metric."""

    rules = (
        Rule(
            # The comparison is always true; a pattern that is no regular expression is an error of `matches`.
            "!has(self.pattern) || ''.matches(self.pattern) in [true, false]",
            "a regular expression of RE2, such as 'epoch (?P<epoch>\\d+): accuracy (?P<metric>\\S+)'",
            ".pattern",
        ),
        Rule(
            "!has(self.pattern) || self.pattern.contains('(?P<metric>') || self.pattern.contains('(?<metric>')",
            "a group named metric, such as 'accuracy (?P<metric>\\S+)'",
            ".pattern",
        ),
        Rule(
            "!has(self.pattern) || self.source in ['Logs', 'TerminationMessage']",
            "no pattern, or source: Logs or TerminationMessage, because only text has a pattern",
            ".pattern",
        ),
        Rule(
            "has(self.path) == (self.source == 'File')",
            "path with source: File, and with no other source, because it names the file that is read",
            ".path",
        ),
    )

    source: ReportingSource = Field(
        default=ReportingSource.PUSH,
        description="Push: the script reports with the wattloop client. Logs: Wattloop reads the metric from the "
        "output of the training container, so the script needs no change. File: wattloop run reads it from the rows "
        "of a file that the script writes, JSON lines or a table of comma-separated values with a head; in a cluster, "
        "where Wattloop has no access to files of a pod, such a job does not start. KubeflowTrainer: a callback for "
        "Kubeflow Trainer reports, such as the one that Hugging Face's Trainer has from transformers 5.4 on; its "
        "metrics have names such as eval_loss. TerminationMessage: "
        "Wattloop reads the final metric and the epochs from the container's termination message; nothing is "
        "known before the end. A script that does not use the client cannot be asked to stop: Wattloop ends "
        "its workload when the target is reached, the cost limit is exceeded or maxEpochs is passed.",
    )
    pattern: str | None = Field(
        default=None,
        description="Regular expression (RE2 syntax) that is searched in each line of the output. The group metric "
        "has the metric; the optional group epoch has the number of the epoch. Absent: name=value, name: value and "
        "JSON are recognized, for the target's metric and for epoch. An evaluation of epoch 0 shows that the output "
        "counts epochs from 0; without epochs in it, each evaluation counts as one.",
        min_length=1,
        max_length=MAX_PATTERN_CHARACTERS,
    )
    path: str | None = Field(
        default=None,
        description="The file of source File, relative to the folder in which the training starts. It may have "
        "$(WATTLOOP_RECURRENCE) and the other variables of the decision, so that each run has a file of its own. A key "
        "or column has the name of the metric, and one named epoch the number of the epoch. Absent: none, with another "
        "source.",
        min_length=1,
        max_length=MAX_PATH_CHARACTERS,
        pattern=r"^[^\x00-\x1f]+$",
    )

    @property
    def uses_client(self) -> bool:
        """Whether the script reports by itself, and therefore learns when to stop."""
        return self.source is ReportingSource.PUSH

    @property
    def reads_output(self) -> bool:
        """Whether Wattloop reads the metric from text that the training leaves."""
        return self.source in (ReportingSource.LOGS, ReportingSource.FILE, ReportingSource.TERMINATION_MESSAGE)

    @property
    def shows_epochs(self) -> bool:
        """Whether each evaluation is seen at once, where a process on the same machine reads it."""
        return self.source in (ReportingSource.LOGS, ReportingSource.FILE)

    @property
    def is_ended_from_outside(self) -> bool:
        """Whether Wattloop ends a training that has reached its target, since it neither asks nor learns that."""
        return self.source in (ReportingSource.LOGS, ReportingSource.FILE, ReportingSource.KUBEFLOW_TRAINER)

    @property
    def sends_reports(self) -> bool:
        """Whether the process itself sends reports, so that it needs the address of the reporting API and a token."""
        return self.source in (ReportingSource.PUSH, ReportingSource.KUBEFLOW_TRAINER)
