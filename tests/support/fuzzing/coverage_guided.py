"""The engine of `make fuzz`: Atheris, which is libFuzzer guided by what of the product's code an input reaches."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path

from support.fuzzing.target import Target

# What is instrumented: our own code, and the parsers that see an input first.
INSTRUMENTED = ("wattloop", "wattloop_agent", "wattloop_operator", "ruamel.yaml", "cronsim", "starlette", "fastapi")
MAX_INPUT_BYTES = 64 * 1024
MAX_CHECK_SECONDS = 20
MAX_MEMORY_MEBIBYTES = 2048


def is_installed() -> bool:
    """Whether Atheris is there: it has builds for Linux on x86-64."""
    return importlib.util.find_spec("atheris") is not None


def instrument(module: str) -> None:
    """Import a target's module so that the product's code below it is instrumented."""
    import atheris  # noqa: PLC0415

    with atheris.instrument_imports(include=list(INSTRUMENTED), enable_loader_override=False):
        importlib.import_module(module)


def fuzz(target: Target, folder: Path, seconds: int) -> None:
    """Fuzz until the time is over or a defect is found; ends this process, with 0 where nothing was found.

    Args:
        target: The target.
        folder: Keeps the corpus that grows, the seeds and the failing input.
        seconds: How long.
    """
    import atheris  # noqa: PLC0415

    corpus, seeds = folder / "corpus", folder / "seeds"
    for each in (corpus, seeds):
        each.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(target.seeds()):
        (seeds / f"{number:04}").write_bytes(data)
    words = folder / "tokens.dict"
    words.write_text("".join(map(_quoted, target.tokens)))
    options = {
        "max_total_time": seconds,
        "artifact_prefix": f"{folder}/",
        "timeout": MAX_CHECK_SECONDS,
        "rss_limit_mb": MAX_MEMORY_MEBIBYTES,
        "max_len": MAX_INPUT_BYTES,
        "dict": words,
        "print_final_stats": 1,
    }
    arguments = [sys.argv[0], *(f"-{name}={value}" for name, value in options.items()), str(corpus), str(seeds)]
    atheris.Setup(arguments, target.check)
    atheris.Fuzz()


def _quoted(token: bytes) -> str:
    """A line of libFuzzer's dictionary; it takes tokens of 64 bytes."""
    return '"' + "".join(f"\\x{byte:02x}" for byte in token[:64]) + '"\n'
