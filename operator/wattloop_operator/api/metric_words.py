"""Words in the name of a metric by which lower values are better."""

from __future__ import annotations

# Matched as whole words. Words are separated by any character but a letter, or by capitals (valLoss, MSELoss).
LOWER_IS_BETTER_WORDS = (
    "loss",
    "losses",
    "logloss",
    "error",
    "errors",
    "err",
    "wer",
    "cer",
    "ter",
    "eer",
    "mae",
    "mape",
    "smape",
    "mse",
    "msle",
    "rmse",
    "rmsle",
    "nll",
    "ppl",
    "bpb",
    "bpc",
    "bpd",
    "fid",
    "fvd",
    "kid",
    "lpips",
    "brier",
    "ece",
    "crps",
    "regret",
    "deviance",
    "divergence",
    "entropy",
)
# Long enough to be unmistakable inside another word, such as crossEntropy.
LOWER_IS_BETTER_PHRASES = (
    "perplexity",
    "cross[_./-]?entropy",
    "bits[_./-]?per[_./-]?(byte|char|dim|pixel|token|word)",
    "neg(ative)?[_./-]?log[_./-]?likelihood",
    "edit[_./-]?distance",
)


def _pattern() -> str:
    words = "|".join(LOWER_IS_BETTER_WORDS)
    # A capital begins a word of camel case.
    capitalised = "|".join(word.capitalize() for word in LOWER_IS_BETTER_WORDS)
    upper = words.upper()
    return "|".join(
        (
            f"(?i:{'|'.join(LOWER_IS_BETTER_PHRASES)})",
            f"(^|[^A-Za-z])(?i:{words})([^A-Za-z]|$)",
            f"({capitalised})([^a-z]|$)",
            f"(^|[^A-Za-z])({words})[A-Z]",
            f"[a-z]({upper})([^A-Za-z]|$)",
        )
    )


# A regular expression of RE2 that matches such a name.
LOWER_IS_BETTER_PATTERN = _pattern()
