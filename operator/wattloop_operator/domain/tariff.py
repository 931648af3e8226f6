"""Price and carbon intensity of electricity, by namespace. They are shown, and never part of a decision."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, ValidationError, model_validator

from wattloop.errors import InputError, UsageError
from wattloop.files.reading import read_text
from wattloop.wire.message_fields import shown
from wattloop_operator.api.field_types import DNS_LABEL_PATTERN, NonNegativeDecimalString
from wattloop_operator.api.model import ApiModel
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob

# On the job of a local run: its tariff as JSON. A cluster has the chart's.
ANNOTATION = "wattloop.dev/tariff"
MAX_BYTES = 1024 * 1024
EXPECTED_OF = {
    "currency": "an ISO 4217 code such as EUR",
    "perKilowattHour": "a number of at least 0",
    "gramsPerKilowattHour": "a number of at least 0",
}
EXPECTED = "a tariff such as {currency: EUR, perKilowattHour: 0.25, gramsPerKilowattHour: 380, namespaces: {}}"


class Tariff(ApiModel):
    """What a kilowatt-hour costs and emits. What is not set is not known."""

    currency: str | None = Field(default=None, pattern=r"^[A-Z]{3}$")
    per_kilowatt_hour: NonNegativeDecimalString | None = None
    grams_per_kilowatt_hour: NonNegativeDecimalString | None = None

    @model_validator(mode="after")
    def _price_is_whole(self) -> Self:
        if (self.currency is None) != (self.per_kilowatt_hour is None):
            raise ValueError("found one of currency and perKilowattHour, expected both or neither")
        return self

    @classmethod
    def of_local_job(cls, job: RecurringTrainingJob) -> Tariff:
        """The tariff that is remembered with the job of a local run."""
        return Tariff.from_wire(json.loads(job.metadata.annotations.get(ANNOTATION, "{}")))

    def to_annotation(self) -> str:
        """The tariff as it is remembered with the job of a local run."""
        return json.dumps(self.to_wire())


class Tariffs(Tariff):
    """The tariff, and what differs from it in some namespaces."""

    namespaces: dict[Annotated[str, Field(pattern=DNS_LABEL_PATTERN)], Tariff] = Field(default={})

    def of(self, namespace: str) -> Tariff:
        """The tariff of a namespace: price and carbon intensity are its own, or else the common ones.

        Example:
            >>> team = Tariff(currency="EUR", per_kilowatt_hour="0.2")
            >>> both = Tariffs(grams_per_kilowatt_hour="380", namespaces={"team-a": team})
            >>> both.of("team-a").to_wire(), both.of("team-b").to_wire()
            ({'currency': 'EUR', 'perKilowattHour': '0.2', 'gramsPerKilowattHour': '380'}, \
{'gramsPerKilowattHour': '380'})
        """
        common = Tariff(**{name: getattr(self, name) for name in Tariff.model_fields})
        own = self.namespaces.get(namespace, common).model_dump(exclude_none=True)
        return common.model_copy(update=own)


NO_TARIFF, NO_TARIFFS = Tariff(), Tariffs()


def tariff_of(namespace: str, job: RecurringTrainingJob | None, tariffs: Tariffs | None) -> Tariff:
    """The tariff of a job.

    Args:
        namespace: Its namespace.
        job: The job; None if it is not known.
        tariffs: The tariffs; None: the one that is remembered with the job of a local run.
    """
    if tariffs is not None:
        return tariffs.of(namespace)
    return NO_TARIFF if job is None else Tariff.of_local_job(job)


def read_tariffs(path: Path) -> Tariffs:
    """Read the tariffs in a file of YAML or JSON.

    Raises:
        InputError: The file cannot be read.
        UsageError: Its content is no tariff.
    """
    # The operator parses YAML only where there is a tariff.
    from wattloop_operator.api.checks.documents import DocumentError, read_documents  # noqa: PLC0415

    try:
        documents = list(read_documents(str(path), read_text(path, MAX_BYTES, EXPECTED)))
    except DocumentError as error:
        raise UsageError(str(error.problem)) from error
    if len(documents) != 1:
        raise InputError(str(path), f"{len(documents)} documents", EXPECTED)
    (document,) = documents
    try:
        return Tariffs.model_validate(document.value)
    except ValidationError as error:
        problem = error.errors()[0]
        if problem["type"] == "extra_forbidden":
            found, expected = "an unknown field", ", ".join(f.alias or "" for f in Tariffs.model_fields.values())
            raise UsageError(str(document.problem(problem["loc"], found, expected, at_key=True))) from error
        found, _, expected = problem["msg"].removeprefix("Value error, found ").partition(", expected ")
        if not expected:
            name = problem["loc"][-1] if problem["loc"] else ""
            found, expected = shown(problem["input"]), EXPECTED_OF.get(str(name), EXPECTED)
        raise UsageError(str(document.problem(problem["loc"], found, expected))) from error
