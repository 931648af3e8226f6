"""The reporting API that the tests of a module share."""

from collections.abc import Iterator

import pytest

from support.reporting.reporting_api import Api, running_api


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with running_api(tmp_path_factory.mktemp("api")) as running:
        yield running
