"""Random steps of the fuzz target `plan-service`: whole lines, so that mutations keep what a pipeline has reached."""

import random
from collections.abc import Mapping, Sequence

from support.fuzzing.rank_steps import CLOCKS, ENERGY, MEASURED, REGISTER, REPORT, STRAGGLER, TIMES

# Most steps lead on; an attempt that has ended, or an operator that starts again, has forgotten what was special.
VERBS = {REPORT: 12, MEASURED: 5, "plan": 5, REGISTER: 2, STRAGGLER: 1, "pass": 2, "hold": 1, "go": 1, "restart": 1,
         "end": 1}  # fmt: skip
# Ranks of a job of two; the others are those of a larger one.
RANKS = (0, 0, 0, 1, 1, 1, 2, 3)
MAX_FIELDS = 2
# Extreme, but most of them valid: what is not a number of the form never reaches the service.
VALUES = ("0", "1", "3", "0.9", "1.5", "5e-324", "1e-9", "1e9", "1e14", "1e300", "-0.0", "-1", "NaN",
          "9223372036854775807")  # fmt: skip
REPORTED = (
    *(['"finished": true'] * 5), '"profiled": true', '"profiled": false', '"mismatch": "m"', '"refusal": "r"',
    '"measurements": []', '"compared": []', '"iterations": {}', '"sequence": {}', '"directive": {}',
    '"applied_directive": {}', '"measured_iterations": {}', '"iteration_seconds": {}', '"iteration_joules": {}',
    '"iteration_error_joules": {}', '"blocking_watts": {}', '"process": "ffffffffffffffffffffffffffffffff"'
)  # fmt: skip
FIELDS: Mapping[str, Sequence[str]] = {
    REPORT: REPORTED,
    MEASURED: (*REPORTED, *([f'"{TIMES}": {{}}', f'"{ENERGY}": {{}}', f'"{CLOCKS}": {{}}'] * 5)),
    "plan": ('"given": 1', '"given": 2', '"given": 3', '"choice": 1', '"choice": 2', '"enabled": false'),
    REGISTER: (
        '"process": "ffffffffffffffffffffffffffffffff"', '"process": "eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee"',
        '"data_parallel": 2', '"microbatches": 3', '"gpus": {}', '"model": "other"', '"gpu_product": "NVIDIA H100"',
        '"clocks_megahertz": [900]', '"instructions": ["forward:0:0"]', '"schedule": "GPipe"'
    ),
    STRAGGLER: ('"iteration_seconds": {}',)
}  # fmt: skip
PASSED_SECONDS = (1, 30, 60)


def random_step(rng: random.Random) -> bytes:
    """A line of `support.fuzzing.rank_steps`, with at most two unusual fields."""
    verb = rng.choices(list(VERBS), list(VERBS.values()))[0]
    joined = "+" if rng.random() < 0.1 else ""
    if verb == "pass":
        return f"pass {rng.choice(PASSED_SECONDS)}\n".encode()
    if verb not in FIELDS:
        return f"{verb}\n".encode()
    texts = [rng.choice(FIELDS[verb]).format(rng.choice(VALUES)) for _ in range(rng.randint(0, MAX_FIELDS))]
    return f"{joined}{verb} {rng.choice(RANKS)} {{{', '.join(texts)}}}\n".encode()
