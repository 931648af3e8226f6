"""Writes the usage of a month with the columns of FOCUS 1.2, the FinOps Open Cost and Usage Specification.

A row is the energy of a job. What Wattloop does not know, such as the account and the issuer of an invoice, is empty.
So are the costs of a job that gives no price: the specification wants some, but a made-up 0 would be summed up.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime
from typing import IO

from wattloop.files.csv_table import write_csv_table
from wattloop_operator.domain.quantities import JOULES_PER_KILOWATT_HOUR
from wattloop_operator.history.month_usage import MonthUsage, next_month

UNIT = "kWh"
# Columns that the specification does not have begin with x_.
COLUMNS = (
    "BilledCost", "BillingAccountId", "BillingAccountName", "BillingCurrency", "BillingPeriodEnd", "BillingPeriodStart",
    "ChargeCategory", "ChargeClass", "ChargeDescription", "ChargeFrequency", "ChargePeriodEnd", "ChargePeriodStart",
    "ConsumedQuantity", "ConsumedUnit", "ContractedCost", "EffectiveCost", "InvoiceIssuerName", "ListCost",
    "PricingQuantity", "PricingUnit", "ProviderName", "PublisherName", "ResourceId", "ResourceName", "ResourceType",
    "ServiceCategory", "ServiceName", "SubAccountId", "SubAccountName", "Tags", "x_GpuSeconds", "x_CarbonGrams",
    "x_CoveragePercent", "x_EnergyNote",
)  # fmt: skip


def write_focus(stream: IO[str], usages: Iterable[MonthUsage], begin: datetime) -> None:
    """Write the usage of the month that begins then."""
    period = {
        f"{name}Period{end}": f"{moment:%Y-%m-%dT%H:%M:%SZ}"
        for name in ("Billing", "Charge")
        for end, moment in (("Start", begin), ("End", next_month(begin)))
    }
    write_csv_table(stream, COLUMNS, (period | _charge(each) for each in usages))


def _charge(usage: MonthUsage) -> dict[str, object]:
    """The columns of a job besides the period; None is written as an empty cell."""
    quantity = None if usage.energy_joules is None else usage.energy_joules / JOULES_PER_KILOWATT_HOUR
    of = f"{usage.measured_attempts} of {usage.attempts} attempts"
    return {
        # The price has no discounts, and nothing is paid in advance.
        **dict.fromkeys(("BilledCost", "ContractedCost", "EffectiveCost", "ListCost"), usage.money_amount),
        "BillingCurrency": usage.currency,
        "ChargeCategory": "Usage",
        "ChargeDescription": f"GPU energy of {of}, which ended in the month and were measured",
        "ChargeFrequency": "Usage-Based",
        **dict.fromkeys(("ConsumedQuantity", "PricingQuantity"), quantity),
        **dict.fromkeys(("ConsumedUnit", "PricingUnit"), None if quantity is None else UNIT),
        "ResourceId": f"{usage.namespace}/{usage.job}",
        "ResourceName": usage.job,
        "ResourceType": "RecurringTrainingJob",
        "ServiceCategory": "AI and Machine Learning",
        "ServiceName": "GPU energy",
        **dict.fromkeys(("SubAccountId", "SubAccountName"), usage.namespace),
        "Tags": json.dumps({"queue": usage.queue} if usage.queue else {}),
        "x_GpuSeconds": usage.gpu_seconds,
        "x_CarbonGrams": usage.carbon_grams,
        "x_CoveragePercent": usage.coverage_percent,
        "x_EnergyNote": usage.energy_note,
    }
