"""A run says once what is wrong with its GPUs."""

import logging

import pytest

from wattloop_operator.local.display import each_warning_once


def test_a_run_says_a_warning_once_and_another_run_says_it_again(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("wattloop")
    for _ in range(2):
        with each_warning_once(logger):
            for watts in (700, 700, 600, 700):
                logger.warning("the power limit of %g W is not held", watts)
    said = [record.getMessage() for record in caplog.records]
    assert said == ["the power limit of 700 W is not held", "the power limit of 600 W is not held"] * 2
