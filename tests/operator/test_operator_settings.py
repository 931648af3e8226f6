"""The operator's settings: their precedence, and the errors for invalid values."""

import argparse
from pathlib import Path

import pytest

from wattloop.commands.settings import Address, add_options
from wattloop.errors import InputError, UsageError
from wattloop_operator.operator_settings import PREFIX, SETTINGS, OperatorSettings, settings_from


def read(*options: str, **environment: str) -> OperatorSettings:
    parser = argparse.ArgumentParser()
    add_options(parser, SETTINGS, PREFIX)
    return settings_from(parser.parse_args(options), environment)


def test_settings_have_defaults() -> None:
    settings = read()
    assert (settings.database, settings.workers) == ("sqlite:///wattloop.db", 8)
    assert settings.report_bind == Address("127.0.0.1", 8080)
    assert settings.kubeconfig is None


def test_an_option_precedes_a_variable_which_precedes_the_file(tmp_path: Path) -> None:
    file = tmp_path / "operator.toml"
    file.write_text('workers = 2\nlog_level = "debug"\ncontext = "file"\n')
    config = f"--config={file}"
    assert read(config).workers == 2
    assert read(config, WATTLOOP_WORKERS="3").workers == 3
    settings = read(config, "--workers=4", WATTLOOP_WORKERS="3", WATTLOOP_CONTEXT="variable")
    assert (settings.workers, settings.context, settings.log_level) == (4, "variable", "debug")


def test_duplicate_namespaces_are_removed() -> None:
    assert read().namespaces == ()
    assert read("--namespaces=team-a, team-b,team-a").namespaces == ("team-a", "team-b")


def test_a_variable_can_name_the_config_file(tmp_path: Path) -> None:
    file = tmp_path / "operator.toml"
    file.write_text("workers = 2\n")
    assert read(WATTLOOP_CONFIG=str(file)).workers == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--namespaces=team-a,Team_B"],
            "--namespaces: found 'team-a,Team_B', expected names of namespaces, separated",
        ),
        (["--namespaces=team-a,"], "expected names of namespaces, separated by commas"),
        (["--workers=0"], "--workers: found '0', expected a whole number from 1 to 64"),
        (["--report-bind=here"], "expected HOST:PORT"),
        (["--metrics-bind=here"], "HOST:PORT, such as 127.0.0.1:9402, or off"),
        (["--log-format=xml"], "expected one of text, json"),
        (["--report-bind=0.0.0.0:8080"], "give --report-url"),
        (["--report-url=reports"], "expected http://… or https://…"),
        (["--report-certificate=a.pem"], "--report-certificate and --report-key require each other"),
    ],
)
def test_an_invalid_option_is_reported(options: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read(*options)


def test_an_invalid_variable_is_named() -> None:
    with pytest.raises(UsageError, match="WATTLOOP_WORKERS: found 'many'"):
        read(WATTLOOP_WORKERS="many")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("workres = 2", "the key 'workres', expected one of database"),
        ("workers = true", "expected a text or a number"),
        ("workers = 0", "expected a whole number"),
        ("workers =", "expected TOML"),
    ],
)
def test_an_invalid_config_file_is_reported(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "operator.toml"
    file.write_text(text)
    with pytest.raises(InputError, match=message):
        read(f"--config={file}")


def test_an_address_can_be_off() -> None:
    assert read("--metrics-bind=off", "--health-bind=off").health_bind is None


def test_every_setting_is_a_field() -> None:
    assert {setting.key for setting in SETTINGS} == set(OperatorSettings.__dataclass_fields__)


def test_the_agents_service_account_needs_a_namespace() -> None:
    assert read().agent_service_account == ""
    assert read("--agent-service-account=wattloop-agent/agent").agent_service_account == "wattloop-agent/agent"
    for invalid in ("agent", "a/b/c", "A/b", "/agent"):
        with pytest.raises(UsageError, match="a service account, NAMESPACE/NAME"):
            read(f"--agent-service-account={invalid}")


@pytest.mark.parametrize(
    ("name", "digits", "expected"),
    [("workers", "9" * 5000, "a whole number from 1 to"), ("report-bind", "127.0.0.1:" + "9" * 5000, "HOST:PORT")],
)
def test_thousands_of_digits_are_rejected_with_a_short_message(name: str, digits: str, expected: str) -> None:
    with pytest.raises(UsageError, match=f"expected {expected}") as raised:
        read(f"--{name}={digits}")
    assert len(str(raised.value)) < 300


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("workers = " + "9" * 5000, "a whole number of more than 4300 digits"),
        ("workers = 0x" + "f" * 5000, "workers = a number of 20000 bits"),
        ("workers = " + "[" * 5000, "nested too deeply"),
    ],
    ids=["digits", "hexadecimal", "nested"],
)
def test_a_config_file_with_values_that_python_cannot_read_is_rejected(tmp_path: Path, text: str, found: str) -> None:
    file = tmp_path / "operator.toml"
    file.write_text(text)
    with pytest.raises(InputError, match=found) as raised:
        read(f"--config={file}")
    assert len(str(raised.value)) < 300
