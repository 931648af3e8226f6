"""The chart package of `make dist` is the chart."""

import subprocess
import sys
from pathlib import Path

from support.chart.rendering import documents
from support.control_plane.chart import CHART, REPOSITORY
from support.control_plane.commands import ClusterCommand

# Only the chart is packaged: the wheel has tests of its own.
PACKAGE = """\
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import distributions
print(distributions.package_chart(Path(sys.argv[2]), ""))
"""


def test_the_package_installs_what_the_folder_installs(helm: ClusterCommand, tmp_path: Path) -> None:
    command = [sys.executable, "-c", PACKAGE, str(REPOSITORY / "images"), str(tmp_path)]
    package = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    options = ("--set=reporting.tls.mode=none", "--namespace=home")
    packaged, folder = (documents(helm("template", "probe", chart, *options)) for chart in (package, str(CHART)))
    assert packaged == folder
    assert any(each["kind"] == "CustomResourceDefinition" for each in packaged)
