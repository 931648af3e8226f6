"""The usage of a month: which attempts count, what price and carbon they have, and what was not measured."""

import csv
import io
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from support.databases.many_jobs import NAMESPACE, job_body
from support.databases.sample_record import RECORD
from wattloop_operator.domain.records import LateUsage
from wattloop_operator.domain.tariff import ANNOTATION as TARIFF
from wattloop_operator.domain.tariff import Tariff, Tariffs
from wattloop_operator.history.energy_origin import ANNOTATION
from wattloop_operator.history.month_usage import month_begin, month_usages, write_focus
from wattloop_operator.store import Store, open_store

MARCH = datetime(2026, 3, 1, tzinfo=UTC)
OWN = replace(RECORD, namespace=NAMESPACE, job_name="own", job_uid="uid-own", gpu_count=2)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "wattloop.db") as opened:
        yield opened


def ended(store: Store, *moments: datetime, energy_joules: float = 3_600_000.0) -> None:
    for index, moment in enumerate(moments):
        known = len(store.observations.of_job(OWN.job_uid))
        record = replace(OWN, recurrence=known + index, finished_at=moment, energy_joules=energy_joules)
        store.observations.record(replace(record, recurrence_name=f"own-{record.recurrence}"))


def test_an_attempt_counts_in_the_month_in_which_it_ended_in_utc(store: Store) -> None:
    second = timedelta(seconds=1)
    ended(store, MARCH - second)
    ended(store, MARCH)
    ended(store, month_begin("2026-04") - second)
    ended(store, month_begin("2026-04"))
    assert [month_usages(store, month_begin(f"2026-0{each}"))[0].attempts for each in (2, 3, 4)] == [1, 2, 1]
    assert month_usages(store, month_begin("2026-05")) == ()
    (march,) = month_usages(store, MARCH)
    assert (march.energy_joules, march.gpu_seconds) == (7_200_000.0, 2 * 2 * RECORD.time_seconds)


def test_what_agents_reported_after_the_end_counts(store: Store) -> None:
    ended(store, MARCH, MARCH)
    late = LateUsage(OWN.job_uid, recurrence=0, attempt=OWN.attempt, energy_joules=4_000_000.0, time_seconds=700.0)
    store.late_usages.record(late)
    (march,) = month_usages(store, MARCH)
    assert (march.attempts, march.energy_joules) == (2, 7_600_000.0)
    assert march.gpu_seconds == 2 * (RECORD.time_seconds + 700.0)


def test_gpu_time_is_unknown_where_the_number_of_gpus_is(store: Store) -> None:
    store.observations.record(replace(OWN, finished_at=MARCH, gpu_count=0))
    (march,) = month_usages(store, MARCH)
    assert march.gpu_seconds is None


def test_price_and_carbon_are_those_of_the_tariff_and_unknown_without_one(store: Store) -> None:
    ended(store, MARCH)
    (without,) = month_usages(store, MARCH)
    assert (without.money_amount, without.currency, without.carbon_grams, without.queue) == (None, "", None, "")
    body = job_body("own")
    tariff = Tariff.from_wire({"currency": "EUR", "perKilowattHour": "0.31", "gramsPerKilowattHour": 380})
    body["metadata"]["annotations"] = {TARIFF: tariff.to_annotation()}
    body["spec"]["template"]["metadata"] = {"labels": {"kueue.x-k8s.io/queue-name": "research"}}
    store.objects.create("RecurringTrainingJob", NAMESPACE, "own", body)
    (found,) = month_usages(store, MARCH)
    other = Tariffs(namespaces={NAMESPACE: Tariff(grams_per_kilowatt_hour=Decimal(100))})
    assert month_usages(store, MARCH, other) == (
        found.model_copy(update={"money_amount": None, "currency": "", "carbon_grams": 100.0}),
    )
    assert (found.money_amount, found.currency, found.carbon_grams, found.queue) == (0.31, "EUR", 380.0, "research")
    text = io.StringIO()
    write_focus(text, [without, found], MARCH)
    unpriced, charge = csv.DictReader(io.StringIO(text.getvalue()))
    assert (unpriced["BilledCost"], unpriced["BillingCurrency"], unpriced["ConsumedQuantity"]) == ("", "", "1.0")
    assert {name: value for name, value in charge.items() if value} == {
        **dict.fromkeys(("BilledCost", "ContractedCost", "EffectiveCost", "ListCost"), "0.31"),
        "BillingCurrency": "EUR",
        **dict.fromkeys(("BillingPeriodStart", "ChargePeriodStart"), "2026-03-01T00:00:00Z"),
        **dict.fromkeys(("BillingPeriodEnd", "ChargePeriodEnd"), "2026-04-01T00:00:00Z"),
        "ChargeCategory": "Usage",
        "ChargeDescription": "GPU energy of 1 of 1 attempts, which ended in the month and were measured",
        "ChargeFrequency": "Usage-Based",
        **dict.fromkeys(("ConsumedQuantity", "PricingQuantity"), "1.0"),
        **dict.fromkeys(("ConsumedUnit", "PricingUnit"), "kWh"),
        "ResourceId": f"{NAMESPACE}/own",
        "ResourceName": "own",
        "ResourceType": "RecurringTrainingJob",
        "ServiceCategory": "AI and Machine Learning",
        "ServiceName": "GPU energy",
        **dict.fromkeys(("SubAccountId", "SubAccountName"), NAMESPACE),
        "Tags": '{"queue": "research"}',
        "x_GpuSeconds": str(2 * RECORD.time_seconds),
        "x_CarbonGrams": "380.0",
        "x_CoveragePercent": "100.0",
    }


def test_an_attempt_without_energy_lowers_the_coverage_and_is_no_energy_of_zero(store: Store) -> None:
    ended(store, MARCH, energy_joules=0.0)
    (found,) = month_usages(store, MARCH)
    assert (found.energy_joules, found.coverage_percent) == (None, 0.0)
    ended(store, MARCH)
    (found,) = month_usages(store, MARCH)
    assert (found.energy_joules, found.coverage_percent) == (3_600_000.0, 50.0)


def test_a_time_that_is_not_known_is_no_gpu_time_of_zero(store: Store) -> None:
    store.observations.record(replace(OWN, finished_at=MARCH, time_seconds=0.0))
    assert month_usages(store, MARCH)[0].gpu_seconds is None
    ended(store, MARCH)
    assert month_usages(store, MARCH)[0].gpu_seconds == 2 * RECORD.time_seconds


def test_energies_of_idle_simulated_gpus_are_said_to_be_that(store: Store) -> None:
    ended(store, MARCH, energy_joules=300.0)
    assert month_usages(store, MARCH)[0].energy_note == ""
    body = job_body("own")
    body["metadata"]["annotations"] = {ANNOTATION: "simulated"}
    store.objects.create("RecurringTrainingJob", NAMESPACE, "own", body)
    assert "idle simulated GPU" in month_usages(store, MARCH)[0].energy_note


@pytest.mark.parametrize("text", ["2026-13", "2026", "March 2026", ""])
def test_what_is_no_month_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected a month such as 2026-03"):
        month_begin(text)
