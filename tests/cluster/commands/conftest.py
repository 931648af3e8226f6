"""The commands of `wattloop` on a real API server."""

from pathlib import Path

import pytest

from support.control_plane.commands import ClusterCommand
from support.control_plane.fixtures import Wattloop
from wattloop.commands.main import main


@pytest.fixture
def wattloop(capsys: pytest.CaptureFixture[str], kubectl: ClusterCommand) -> Wattloop:
    """Runs `wattloop` in this process, as an administrator of the cluster unless another kubeconfig is named."""

    def run(*words: str, kubeconfig: Path = kubectl.kubeconfig) -> tuple[int, str, str]:
        code = main([*words, f"--kubeconfig={kubeconfig}"])
        return code, *capsys.readouterr()

    return run
