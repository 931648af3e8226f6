"""An option, else an environment variable, else the config file, else the default; each mistake said with its place."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from wattloop.commands.settings import Address, add_options
from wattloop.errors import InputError, UsageError
from wattloop_operator.settings import PREFIX, SETTINGS, Settings, settings_from


def read(*options: str, **environment: str) -> Settings:
    parser = argparse.ArgumentParser()
    add_options(parser, SETTINGS, PREFIX)
    return settings_from(parser.parse_args(options), environment)


def test_without_any_there_are_defaults() -> None:
    settings = read()
    assert (settings.database, settings.workers) == ("sqlite:///wattloop.db", 8)
    assert settings.report_bind == Address("127.0.0.1", 8080)
    assert settings.kubeconfig is None


def test_an_option_comes_before_a_variable_before_the_file(tmp_path: Path) -> None:
    file = tmp_path / "operator.toml"
    file.write_text('workers = 2\nlog_level = "debug"\ncontext = "file"\n')
    config = f"--config={file}"
    assert read(config).workers == 2
    assert read(config, WATTLOOP_WORKERS="3").workers == 3
    found = read(config, "--workers=4", WATTLOOP_WORKERS="3", WATTLOOP_CONTEXT="variable")
    assert (found.workers, found.context, found.log_level) == (4, "variable", "debug")


def test_namespaces_are_listed_once_each() -> None:
    assert read().namespaces == ()
    assert read("--namespaces=team-a, team-b,team-a").namespaces == ("team-a", "team-b")


def test_the_file_may_be_named_by_a_variable(tmp_path: Path) -> None:
    file = tmp_path / "operator.toml"
    file.write_text("workers = 2\n")
    assert read(WATTLOOP_CONFIG=str(file)).workers == 2


@pytest.mark.parametrize(
    ("options", "says"),
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
        (["--report-certificate=a.pem"], "--report-certificate and --report-key go together"),
    ],
)
def test_a_wrong_option_is_said(options: list[str], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        read(*options)


def test_a_wrong_variable_is_named() -> None:
    with pytest.raises(UsageError, match="WATTLOOP_WORKERS: found 'many'"):
        read(WATTLOOP_WORKERS="many")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("workres = 2", "the key 'workres', expected one of database"),
        ("workers = true", "expected a text or a number"),
        ("workers = 0", "expected a whole number"),
        ("workers =", "expected TOML"),
    ],
)
def test_a_wrong_file_is_said_with_its_name(text: str, says: str, tmp_path: Path) -> None:
    file = tmp_path / "operator.toml"
    file.write_text(text)
    with pytest.raises(InputError, match=says):
        read(f"--config={file}")


def test_off_serves_nothing() -> None:
    assert read("--metrics-bind=off", "--health-bind=off").health_bind is None


def test_every_setting_is_a_field() -> None:
    assert {setting.key for setting in SETTINGS} == set(Settings.__dataclass_fields__)


def test_the_agents_service_account_has_a_namespace() -> None:
    assert read().agent_service_account == ""
    assert read("--agent-service-account=wattloop-agent/agent").agent_service_account == "wattloop-agent/agent"
    for wrong in ("agent", "a/b/c", "A/b", "/agent"):
        with pytest.raises(UsageError, match="a service account, NAMESPACE/NAME"):
            read(f"--agent-service-account={wrong}")


@pytest.mark.parametrize(
    ("name", "digits", "expected"),
    [("workers", "9" * 5000, "a whole number from 1 to"), ("report-bind", "127.0.0.1:" + "9" * 5000, "HOST:PORT")],
)
def test_thousands_of_digits_are_refused_with_what_would_be_right(name: str, digits: str, expected: str) -> None:
    with pytest.raises(UsageError, match=f"expected {expected}") as refusal:
        read(f"--{name}={digits}")
    assert len(str(refusal.value)) < 300


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("workers = " + "9" * 5000, "a whole number of more than 4300 digits"),
        ("workers = 0x" + "f" * 5000, "workers = a number of 20000 bits"),
        ("workers = " + "[" * 5000, "nested too deeply"),
    ],
    ids=["digits", "hexadecimal", "nested"],
)
def test_a_config_file_with_what_python_cannot_read_is_refused(tmp_path: Path, text: str, found: str) -> None:
    file = tmp_path / "operator.toml"
    file.write_text(text)
    with pytest.raises(InputError, match=found) as refusal:
        read(f"--config={file}")
    assert len(str(refusal.value)) < 300
