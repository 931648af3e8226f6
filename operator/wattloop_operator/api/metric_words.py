"""Words in the name of a metric by which lower, or higher, values are better."""


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
