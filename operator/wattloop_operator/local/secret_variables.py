"""Which variables of a job are secret by their names, and the job without them, which a local run stores."""

from __future__ import annotations

import hashlib
import re
from typing import Any

from wattloop_operator.api.recurring_training_job import RecurringTrainingJob

# Words of a name, also of one such as apiKey.
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_SECRET = re.compile(r"key|\w*(token|passw(or)?d|passphrase|secret|credential|apikey)s?")
# A limit of tokens of a text.
_NOT_SECRET = frozenset({"tokens"})


def is_secret(name: str) -> bool:
    """Whether a variable is a secret by its name.

    Example:
        >>> [is_secret(each) for each in ("HF_TOKEN", "PGPASSWORD", "apiKey", "AWS_SECRET_ACCESS_KEY")]
        [True, True, True, True]
        >>> [is_secret(each) for each in ("TOKENIZERS_PARALLELISM", "MAX_TOKENS", "MONKEY", "KEYBOARD")]
        [False, False, False, False]
    """
    words = {word.lower() for word in _WORD.findall(name)}
    return any(word not in _NOT_SECRET and _SECRET.fullmatch(word) for word in words)


def without_secrets(job: RecurringTrainingJob) -> RecurringTrainingJob:
    """The job with a short digest in place of each secret variable's value, so that another value is another template.

    32 bits of a digest tell nobody a token.
    """
    wire = job.to_wire()
    pod = wire["spec"]["template"].get("spec", {}).get("template", {}).get("spec", {})
    variables: list[dict[str, Any]] = [
        variable
        for kind in ("initContainers", "containers")
        for container in pod.get(kind, ())
        for variable in container.get("env", ())
        if "value" in variable and is_secret(variable["name"])
    ]
    if not variables:
        return job
    for variable in variables:
        variable["value"] = f"not stored ({hashlib.sha256(variable['value'].encode()).hexdigest()[:8]})"
    return RecurringTrainingJob.from_wire(wire)
