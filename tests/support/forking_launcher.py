"""A program that starts ranks as torchrun does, but forks them, which saves each an import of PyTorch."""

from collections.abc import Sequence

from support.free_ports import free_port

# PyTorch's elastic agent, of which torchrun is the command.
_PROGRAM = """
import importlib, runpy
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

for module in {modules!r}:
    importlib.import_module(module)

def rank():
    runpy.run_path({script!r}, run_name="__main__")

config = LaunchConfig(
    1, 1, {ranks}, run_id="none", rdzv_backend="static", rdzv_endpoint="127.0.0.1:{port}",
    rdzv_configs={{"rank": 0, "timeout": 900}}, max_restarts=0, start_method="fork", local_addr="127.0.0.1",
)
elastic_launch(config, rank)()
"""


def forking_launcher(script: str, ranks: int, modules: Sequence[str]) -> str:
    """The program.

    Args:
        script: The script of each rank, in the folder of the program.
        modules: What the script imports is imported before they are forked.
    """
    return _PROGRAM.format(script=script, ranks=ranks, modules=list(modules), port=free_port())
