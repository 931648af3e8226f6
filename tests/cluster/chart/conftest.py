"""Clusters for tests of the chart."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from support.chart.empty_cluster import EmptyCluster, running_empty_cluster


@pytest.fixture
def empty(programs: Mapping[str, Path], tmp_path: Path) -> Iterator[EmptyCluster]:
    """A control plane of the test's own, which costs three seconds of processor time with a release."""
    with running_empty_cluster(programs, tmp_path) as cluster:
        yield cluster
