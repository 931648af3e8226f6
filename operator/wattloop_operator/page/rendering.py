"""Renders the views as HTML. Every text is escaped by Jinja, and its control characters are shown as such."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from pydantic import BaseModel

from wattloop.printable import printable
from wattloop_operator.domain.quantities import (
    ENERGY_UNITS,
    NONE,
    TIME_UNITS,
    metric_text,
    money_text,
    number_text,
    percent_text,
    saving_text,
    time_text,
)
from wattloop_operator.page.views import BeliefView
from wattloop_planner.bandit.configuration import Configuration

MAX_TEXT_CHARACTERS = 8192
# Of a picture of an interval.
BAR_UNITS = 100.0


@dataclass(frozen=True)
class Bar:
    """Where the interval of a cost is drawn, on a logarithmic scale that all bars of a table share."""

    start: float
    width: float
    value: float


def bars(beliefs: Sequence[BeliefView]) -> list[Bar | None]:
    """The bar of each belief; None of a cost that is not known.

    Example:
        >>> from wattloop_operator.history.lines import Interval
        >>> cost = Interval(value=10.0, low=1.0, high=100.0)
        >>> of = dict(batch_size=8, parameters={}, state="tried", observations=1, missed=0, crashes=0, note="")
        >>> bars([BeliefView(cost_percent=cost, **of)])
        [Bar(start=0.0, width=100.0, value=50.0)]
    """
    known = [each.cost_percent for each in beliefs if each.cost_percent is not None and each.cost_percent.high > 0]
    if not known:
        return [None] * len(beliefs)
    # The lower end of a cost that is hardly known is zero, which a logarithm has no place for.
    least = min((each.low for each in known if each.low > 0), default=min(each.high for each in known) / 10)
    largest = max(each.high for each in known)
    scale = BAR_UNITS / (math.log(largest / least) or 1.0)

    def place(cost: float) -> float:
        return round(scale * math.log(max(cost, least) / least), 2)

    return [
        None
        if (cost := each.cost_percent) is None or cost.high <= 0
        else Bar(place(cost.low), max(place(cost.high) - place(cost.low), 0.5), place(cost.value))
        for each in beliefs
    ]


def _configuration(view: Any) -> str:
    return str(Configuration(view.batch_size, tuple(sorted(view.parameters.items()))))


def _shown(value: Any) -> Any:
    return printable(value, MAX_TEXT_CHARACTERS) if isinstance(value, str) and not isinstance(value, Markup) else value


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("wattloop_operator.page"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "configuration": _configuration,
        "metric": lambda value: metric_text(value) or NONE,
        "moment": lambda moment: f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC",
        "money": lambda each: NONE if each is None else money_text(each.amount, each.currency),
        "number": number_text,
        "percent": percent_text,
        "time": time_text,
        "saving": saving_text,
        "saved": lambda interval, unit: unit.interval_text(interval),
    }
    environment.globals |= {
        "address": lambda path, **query: f"{path}?{urlencode(query)}",
        "bars": bars,
        "outdated_seconds": 0.0,
        "unit": {each.name: each for each in (*ENERGY_UNITS, *TIME_UNITS)}.__getitem__,
    }
    return environment


ENVIRONMENT = _environment()


def rendered(template: str, view: BaseModel, outdated_seconds: float = 0.0) -> str:
    """The HTML of a view.

    Args:
        template: Its template.
        view: The view.
        outdated_seconds: The age of what it shows, if that is old and read again; else 0.
    """
    return ENVIRONMENT.get_template(template).render(view=view, outdated_seconds=outdated_seconds)


def rendered_sign_in(problem: str, audience: str) -> str:
    """The HTML of the form by which a viewer signs in."""
    return ENVIRONMENT.get_template("sign_in.html").render(problem=problem, audience=audience)


def rendered_error(title: str, message: str, next_step: str) -> str:
    """The HTML of an error."""
    return ENVIRONMENT.get_template("error.html").render(title=title, message=message, next_step=next_step)
