"""The researcher's notebook runs from its first cell to its last."""

import os
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "examples" / "research"
# A notebook is JSON, so its cells need no Jupyter.
RUN_CELLS = """
import json
cells = json.load(open("policies.ipynb", encoding="utf-8"))["cells"]
scope = {"__name__": "__main__"}
for cell in cells:
    if cell["cell_type"] == "code":
        exec(compile("".join(cell["source"]), cell["id"], "exec"), scope)
"""


def test_the_notebook_replays_a_history_compares_policies_and_draws_a_frontier(tmp_path: Path) -> None:
    environment = {**os.environ, "MPLBACKEND": "Agg", "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", RUN_CELLS]
    shown = subprocess.run(command, cwd=FOLDER, env=environment, capture_output=True, text=True, check=True).stdout
    assert "thompsonSampling   40 recurrences cost as much as 18.4 of the first" in shown
    assert "9.2% less" in shown
    assert sorted(picture.name for picture in tmp_path.rglob("*.png")) == ["frontier.png", "policies.png"]
