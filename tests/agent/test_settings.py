"""Where a setting comes from, and what is said about one that is wrong."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from wattloop.commands.settings import Address
from wattloop.errors import InputError, UsageError
from wattloop_agent.settings import SETTINGS, Settings, add_options, settings_from


def read(*words: str, **environment: str) -> Settings:
    parser = argparse.ArgumentParser()
    add_options(parser)
    return settings_from(parser.parse_args(words), environment)


def test_an_option_wins_over_a_variable_over_the_file_over_the_default(tmp_path: Path) -> None:
    config = tmp_path / "agent.toml"
    config.write_text('log-level = "error"\n'.replace("-", "_") + 'log_format = "json"\nsample_interval = 5\n')
    settings = read(
        "--config",
        str(config),
        "--log-level",
        "debug",
        WATTLOOP_AGENT_LOG_LEVEL="warning",
        WATTLOOP_AGENT_LOG_FORMAT="text",
    )
    assert (settings.log_level, settings.log_format, settings.sample_interval) == ("debug", "text", 5.0)
    assert settings.identity == "process"


def test_every_setting_has_a_default_that_it_accepts() -> None:
    assert set(vars(read())) == {setting.key for setting in SETTINGS}


@pytest.mark.parametrize(
    ("text", "address"), [("off", None), ("0.0.0.0:9402", Address("0.0.0.0", 9402)), ("[::]:1", Address("::", 1))]
)
def test_an_address_is_host_and_port_or_off(text: str, address: Address | None) -> None:
    assert read("--metrics-bind", text).metrics_bind == address


@pytest.mark.parametrize(
    ("option", "text", "told"),
    [
        (
            "--metrics-bind",
            "9402",
            r"--metrics-bind: found '9402', expected HOST:PORT, such as 127.0.0.1:9402, or off",
        ),
        ("--metrics-bind", "a:70000", "expected HOST:PORT"),
        ("--log-format", "xml", "expected one of text, json"),
        ("--sample-interval", "0", "expected a number above 0"),
        ("--sample-interval", "nan", "expected a number above 0"),
        ("--setter-uids", "root", "expected user ids"),
        ("--part", "setter", "needs --setter-socket"),
    ],
)
def test_a_wrong_value_is_named_with_what_would_be_right(option: str, text: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        read(option, text)


def test_a_wrong_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"WATTLOOP_AGENT_IDENTITY: found 'me', expected one of process, pod"):
        read(WATTLOOP_AGENT_IDENTITY="me")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("socket", "expected TOML"),
        ('colour = "red"', "the key 'colour', expected one of socket, "),
        ("log_level = true", "log_level = True, expected a text or a number"),
        ('log_level = "loud"', "log_level = 'loud', expected one of debug"),
    ],
)
def test_a_wrong_config_file_is_named_with_what_stands_there(tmp_path: Path, content: str, told: str) -> None:
    config = tmp_path / "agent.toml"
    config.write_text(content)
    with pytest.raises(InputError, match=told):
        read(WATTLOOP_AGENT_CONFIG=str(config))


def test_a_config_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file or directory"):
        read("--config", str(tmp_path / "none.toml"))
