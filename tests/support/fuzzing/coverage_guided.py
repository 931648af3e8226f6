"""The coverage-guided engine of `make fuzz`: Atheris, that is, libFuzzer for Python."""

import importlib
import importlib.util
import random
import sys
from collections.abc import Callable
from pathlib import Path

from support.fuzzing.mutation import MAX_INPUT_BYTES, STEPS_SHARE, with_steps
from support.fuzzing.target import SteppedTarget, Target

# The instrumented packages: the product, and the parsers that read an input first.
INSTRUMENTED = ("wattloop", "wattloop_agent", "wattloop_operator", "ruamel.yaml", "cronsim", "starlette", "fastapi")
MAX_CHECK_SECONDS = 20
MAX_MEMORY_MEBIBYTES = 2048


def is_installed() -> bool:
    """Whether Atheris is installed, which has builds for Linux on x86-64."""
    return importlib.util.find_spec("atheris") is not None


def instrument(module: str) -> None:
    """Import a target's module with instrumentation of the packages that it imports."""
    import atheris  # noqa: PLC0415

    with atheris.instrument_imports(include=list(INSTRUMENTED), enable_loader_override=False):
        importlib.import_module(module)


def fuzz(target: Target, folder: Path, seconds: int) -> None:
    """Fuzz until the time is over or a defect is found; ends this process, with 0 if there is none.

    Args:
        folder: Folder of the growing corpus, the seeds and a failing input.
    """
    import atheris  # noqa: PLC0415

    corpus, seeds = folder / "corpus", folder / "seeds"
    for each in (corpus, seeds):
        each.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(target.seeds()):
        (seeds / f"{number:04}").write_bytes(data)
    dictionary = folder / "tokens.dict"
    dictionary.write_text("".join(map(_quoted, target.tokens)))
    options = {
        "max_total_time": seconds,
        "artifact_prefix": f"{folder}/",
        "timeout": MAX_CHECK_SECONDS,
        "rss_limit_mb": MAX_MEMORY_MEBIBYTES,
        "max_len": MAX_INPUT_BYTES,
        "dict": dictionary,
        "print_final_stats": 1,
    }
    arguments = [sys.argv[0], *(f"-{name}={value}" for name, value in options.items()), str(corpus), str(seeds)]
    steps = {"custom_mutator": _mutator(target)} if isinstance(target, SteppedTarget) else {}
    atheris.Setup(arguments, target.check, **steps)
    atheris.Fuzz()


def _mutator(target: SteppedTarget) -> Callable[[bytes, int, int], bytes]:
    """Inserts steps into inputs of the corpus, beside the engine's changes of bytes."""
    import atheris  # noqa: PLC0415

    def mutated(data: bytes, max_bytes: int, seed: int) -> bytes:
        rng = random.Random(seed)
        if rng.random() >= STEPS_SHARE:
            # Looked up now, because `atheris.Fuzz` replaces it.
            changed: bytes = atheris.Mutate(data, max_bytes)
            return changed
        return with_steps(target, rng, data)[:max_bytes]

    return mutated


def _quoted(token: bytes) -> str:
    """A line of libFuzzer's dictionary, whose tokens have at most 64 bytes."""
    return '"' + "".join(f"\\x{byte:02x}" for byte in token[:64]) + '"\n'
