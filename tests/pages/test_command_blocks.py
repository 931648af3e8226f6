"""The commands of the readers' pages that need no cluster succeed, and print what the page shows.

The commands of a page run one after another in one folder, as a reader would type them.
"""

import os
import re
import shutil
import signal
import subprocess
import sysconfig
from itertools import groupby
from pathlib import Path

import pytest

from nvml_simulator.compilation import build_library
from support.nvidia_driver import has_nvidia_driver
from support.reader_pages.block_table import blocks_here

pytestmark = [pytest.mark.processes, pytest.mark.timeout(1800)]

ROOT = Path(__file__).parents[2]
# Recorded energy windows.
PROFILE = ROOT / "tests/data/power-profiles/A40+resnet50+gpu0.csv"
SCRIPTS = Path(sysconfig.get_path("scripts"))
# A port that is free, and the place of it in the output.
# Its run has no simulated GPU.
WITHOUT_GPU = "tasks/why-it-does-not-start.md"
# Settings of whoever runs the tests; with git's, a command of the page would clean another clone.
SETTINGS = ("CUDA_", "GIT_", "WATTLOOP_", "XDG_CACHE_HOME")
ANY_PORT = " --bind 127.0.0.1:0"
PORT = re.compile(r"127\.0\.0\.1:\d+")
OMITTED = "[…]"


class Reader:
    """A clone of the repository, as far as the pages use it, and a home folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        home = folder.with_name("home")
        for made in (folder / ".venv/bin", home / ".zfunc", home / ".config/fish/completions"):
            made.mkdir(parents=True)
        (folder / ".venv/bin/wattloop").symlink_to(SCRIPTS / "wattloop")
        (folder / "examples").symlink_to(ROOT / "examples")
        for file in (*(ROOT / "examples/digits").iterdir(), ROOT / ".gitignore"):
            if file.is_file():
                shutil.copy(file, folder)
        shutil.copy(PROFILE, folder / "profile.csv")
        built = build_library().parent
        shutil.copytree(built, home / ".cache/wattloop/nvml_simulator" / built.name)
        own = {name: value for name, value in os.environ.items() if not name.startswith(SETTINGS)}
        path = f"{SCRIPTS}:{os.environ['PATH']}"
        self.environment = own | {"HOME": str(home), "PATH": path, "BROWSER": "true", "LC_ALL": "C.UTF-8"}
        subprocess.run(["git", "init", "--quiet", folder], env=self.environment, check=True)

    def run(self, text: str) -> str:
        """What the commands print."""
        if "wattloop ui " in text:
            return self._serve(text.strip() + ANY_PORT)
        shell = ["bash", "-euo", "pipefail", "-c", text]
        output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        done = subprocess.run(shell, cwd=self.folder, env=self.environment, text=True, check=False, **output)
        # head ends before what it reads does.
        assert done.returncode in (0, -signal.SIGPIPE, 128 + signal.SIGPIPE), done.stdout
        return done.stdout

    def _serve(self, command: str) -> str:
        words = ["bash", "-c", f"exec {command}"]
        with subprocess.Popen(words, cwd=self.folder, env=self.environment, stderr=subprocess.PIPE, text=True) as page:
            line = page.stderr.readline()
            page.send_signal(signal.SIGINT)
            assert page.wait() == 128 + signal.SIGINT
        assert "live page at" in line
        return line


def comparable(text: str) -> str:
    """A text without what varies: line breaks of a page, and ports."""
    return " ".join(PORT.sub("127.0.0.1:PORT", text).split())


def shows(page: str, printed: str) -> bool:
    """Whether the output that a page shows was printed, in order, with what it leaves out."""
    rest = comparable(printed)
    for part in page.split(OMITTED):
        _, found, rest = rest.partition(comparable(part))
        if comparable(part) and not found:
            return False
    return True


PAGES = {page: list(blocks) for page, blocks in groupby(blocks_here("commands", "output"), lambda block: block.page)}


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_print_what_it_shows(page: str, tmp_path: Path) -> None:
    if page == WITHOUT_GPU and has_nvidia_driver():
        pytest.skip("this machine has an NVIDIA driver, whose GPUs the commands of the page would use")
    (tmp_path / "clone").mkdir()
    reader = Reader(tmp_path / "clone")
    printed = ""
    for block in PAGES[page]:
        if block.kind == "commands":
            printed = reader.run(block.text)
        elif block.text.strip() == "(no output)":
            assert printed == ""
        else:
            assert shows(block.text, printed), printed


def test_output_that_was_not_printed_is_found() -> None:
    assert shows("a  b\n[…]\nd at 127.0.0.1:8790", "a b c\nd at 127.0.0.1:33")
    assert not shows("a\n[…]\nd", "d a")
    assert not shows("a x", "a b")
