"""The objective of a job: the target metric, words in names of metrics, and the weight of energy against time."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from wattloop.wire.environment import RunTarget
from wattloop_operator.api.field_types import SECONDS_OF_YEAR, DecimalString, NonNegativeNumber, Number
from wattloop_operator.api.model import UNPUBLISHED_DEFAULT, ApiModel, Rule

# A client that cannot deliver a report waits for up to 30 s, and reports every quarter of the deadline.
MIN_PROGRESS_DEADLINE_SECONDS = 60
METRIC_PATTERN = r"^[^\x00-\x20\x7f-\x9f]([^\x00-\x1f\x7f-\x9f]*[^\x00-\x20\x7f-\x9f])?$"
# Fields of a job that its attempts copy.
Epochs = Annotated[int, Field(ge=1, le=1_000_000)]
Percentage = Annotated[int, Field(ge=0, le=100)]
ProgressDeadline = Annotated[int, Field(ge=MIN_PROGRESS_DEADLINE_SECONDS, le=SECONDS_OF_YEAR)]


def _pattern(words: str, *phrases: str) -> str:
    """A regular expression of RE2 that matches names with one of these words, or with a phrase anywhere.

    Words are separated by any character but a letter, or by capitals (valLoss, MSELoss).
    """
    anywhere = "|".join(words.split())
    # A capital begins a word of camel case.
    capitalised = "|".join(word.capitalize() for word in words.split())
    return "|".join(
        (
            f"(?i:{'|'.join(phrases)})",
            f"(^|[^A-Za-z])(?i:{anywhere})([^A-Za-z]|$)",
            f"({capitalised})([^a-z]|$)",
            f"(^|[^A-Za-z])({anywhere})[A-Z]",
            f"[a-z]({anywhere.upper()})([^A-Za-z]|$)",
        )
    )


# A phrase is long enough to be unmistakable inside another word, such as crossEntropy.
LOWER_IS_BETTER_PATTERN = _pattern(
    "loss losses logloss error errors err wer cer ter eer mae mape smape mse msle rmse rmsle nll ppl bpb bpc bpd "
    "fid fvd kid lpips brier ece crps regret deviance divergence entropy",
    "perplexity",
    "cross[_./-]?entropy",
    "bits[_./-]?per[_./-]?(byte|char|dim|pixel|token|word)",
    "neg(ative)?[_./-]?log[_./-]?likelihood",
    "edit[_./-]?distance",
)
HIGHER_IS_BETTER_PATTERN = _pattern(
    "acc auc auroc auprc bleu dice f1 iou miou mrr ndcg precision psnr recall reward rouge ssim", "accuracy"
)
# Metrics that are a share of what was evaluated: from 0 to 1, or in percent.
SHARE_PATTERN = _pattern(
    "acc ap auc auroc auprc bleu dice em f1 hits? iou jaccard map meteor miou mota mrr ndcg [pr]@[0-9]+ pck pq "
    "prec precision recall rouge(?:[0-9]|l|lsum)? sacrebleu sensitivity specificity top-?[0-9]+",
    "accuracy",
    "exact[_./ -]?match",
)
# Rates of errors, which papers give in percent and libraries as fractions.
ERROR_RATE_PATTERN = _pattern("cer eer per ter wer", "(word|character|phoneme)[_ -]error[_ -]rate")


class Direction(StrEnum):
    """Whether higher or lower values of a metric are better."""

    MAXIMIZE = "Maximize"
    MINIMIZE = "Minimize"


class Target(ApiModel):
    """The metric value at which a model is good enough."""

    rules = (
        Rule(
            f"has(self.direction) || !self.metric.matches(r'{LOWER_IS_BETTER_PATTERN}')",
            "direction: Minimize, because the metric's name says that lower is better (a loss, an error, a "
            "perplexity); or direction: Maximize if higher is better",
            ".direction",
        ),
    )

    metric: str = Field(
        description="Name of the metric as the training prints or reports it, such as val_accuracy or 'val loss': any "
        "text without control characters, and without a space at its ends.",
        min_length=1,
        max_length=64,
        pattern=METRIC_PATTERN,
    )
    direction: Direction = Field(
        default=Direction.MAXIMIZE,
        description="Maximize: the target is reached at or above the threshold (accuracy). Minimize: the target is "
        "reached at or below the threshold (loss, error, perplexity). Absent: Maximize, unless a word of the metric's "
        "name says that lower is better (such as loss, error, perplexity, wer, rmse); a direction is then required.",
        # A rule sees an object with its defaults, so a stored default would look like the user's choice.
        json_schema_extra=UNPUBLISHED_DEFAULT,
    )
    threshold: DecimalString = Field(description="The value to reach.")
    consecutive_evaluations: int = Field(
        default=1,
        description="Number of consecutive evaluations that must meet the threshold. Use more than 1 for a noisy "
        "metric.",
        ge=1,
        le=100,
    )

    @property
    def run_target(self) -> RunTarget:
        """The target in the form that the training process and the policy get."""
        return RunTarget(
            self.metric,
            float(self.threshold),
            maximize=self.direction is Direction.MAXIMIZE,
            consecutive_evaluations=self.consecutive_evaluations,
        )


class JobTarget(Target):
    """The target of a job."""

    threshold: Number = Field(description="The value to reach, such as 0.76.")
    tolerance: NonNegativeNumber | None = Field(
        default=None,
        description="By how much the mean final metric of a batch size may be worse than that of the default batch "
        "size, in units of the metric, such as 0.005. The final metric of a run is the last one "
        "that it reports, also after the target. A batch size that is worse by more, as shown by at least 3 of its "
        "runs and 2 of the default's, is no longer chosen. Absent: reaching the target is enough.",
    )

    @property
    def of_attempt(self) -> Target:
        """The target of a single attempt."""
        return Target(**{name: getattr(self, name) for name in Target.model_fields})


class Objective(ApiModel):
    """The target of a run, and the weight of energy against time."""

    energy_weight_percent: Percentage = Field(
        default=50,
        description="Weight of energy against time in the cost, in percent: 100 minimizes energy alone, 0 minimizes "
        "time alone. cost = w*energy + (1-w)*maxPower*time, in joules, where w is this weight and maxPower is the "
        "sum of the GPUs' maximum power limits.",
    )
    target: JobTarget = Field(description="The metric value that completes a run.")
    max_epochs: Epochs = Field(
        default=100, description="Number of epochs after which a run ends even if it has not reached the target."
    )
