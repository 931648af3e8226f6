"""A tariff: which price and carbon intensity a namespace has, and what is wrong with a file."""

from pathlib import Path

import pytest

from wattloop.errors import WattloopError
from wattloop_operator.domain.tariff import read_tariffs

TARIFF = """
currency: EUR
perKilowattHour: 0.25
gramsPerKilowattHour: "380"
namespaces:
  dear: {currency: USD, perKilowattHour: 1}
  green: {gramsPerKilowattHour: 12.5}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "tariff.yaml"


@pytest.mark.parametrize(
    ("namespace", "expected"),
    [
        ("dear", {"currency": "USD", "perKilowattHour": "1", "gramsPerKilowattHour": "380"}),
        ("green", {"currency": "EUR", "perKilowattHour": "0.25", "gramsPerKilowattHour": "12.5"}),
        ("other", {"currency": "EUR", "perKilowattHour": "0.25", "gramsPerKilowattHour": "380"}),
    ],
)
def test_a_namespace_has_its_own_price_and_intensity_or_the_common_ones(
    file: Path, namespace: str, expected: dict[str, str]
) -> None:
    file.write_text(TARIFF)
    assert read_tariffs(file).of(namespace).to_wire() == expected


def test_an_empty_tariff_knows_nothing(file: Path) -> None:
    file.write_text("{}")
    assert read_tariffs(file).of("any").to_wire() == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("currency: EUR", ":1:1: found one of currency and perKilowattHour, expected both or neither"),
        ("namespaces: {a: {perKilowattHour: 1}}", "namespaces.a: found one of currency and perKilowattHour"),
        ("price: 1", "price: found an unknown field, expected currency, perKilowattHour, gramsPerKilowattHour"),
        ("{currency: EUR, perKilowattHour: much}", "perKilowattHour: found 'much', expected a decimal number"),
        ("{currency: euro, perKilowattHour: 1}", "currency: found 'euro', expected an ISO 4217 code such as EUR"),
        ("gramsPerKilowattHour: -1", "gramsPerKilowattHour: found -1, expected a number of at least 0"),
        ("[1]", "found a list, expected a tariff such as {currency: EUR"),
        ("", "found 0 documents, expected a tariff"),
        ("a: [", "not YAML"),
    ],
)
def test_the_message_says_where_what_is_wrong(file: Path, text: str, message: str) -> None:
    file.write_text(text)
    with pytest.raises(WattloopError) as error:
        read_tariffs(file)
    assert message in str(error.value)
    assert str(error.value).startswith(str(file))
