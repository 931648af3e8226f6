"""The sources of a setting, and the messages about invalid ones."""

import argparse
import subprocess
import sys
from pathlib import Path

import pytest

from wattloop.commands.settings import Address
from wattloop.errors import InputError, UsageError
from wattloop_agent.agent_settings import SETTINGS, AgentSettings, add_options, settings_from


def read(*arguments: str, **environment: str) -> AgentSettings:
    parser = argparse.ArgumentParser()
    add_options(parser)
    return settings_from(parser.parse_args(arguments), environment)


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
    ("option", "text", "message"),
    [
        ("--metrics-bind", "9402", r"--metrics-bind: found '9402', expected HOST:PORT, such as 127.0.0.1:9402, or off"),
        ("--metrics-bind", "a:70000", "expected HOST:PORT"),
        ("--log-format", "xml", "expected one of text, json"),
        ("--sample-interval", "0", r"expected seconds, from 0\.01 to 3600"),
        ("--sample-interval", "nan", r"expected seconds, from 0\.01 to 3600"),
        ("--heartbeat-timeout", "1e300", r"expected seconds, from 0\.5 to 600"),
        ("--push-interval", "soon", r"expected seconds, from 0\.1 to 3600"),
        ("--minimum-power-limit", "-1", "expected a number above 0"),
        ("--state-directory", "", "--state-directory: found '', expected a path"),
        ("--power-controller-uids", "root", "expected user ids"),
        ("--part", "power-controller", "needs --power-controller-socket"),
    ],
)
def test_an_invalid_value_is_named_with_the_expected_one(option: str, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read(option, text)


@pytest.mark.parametrize("what", ["power-limit", "graphics-clock", "memory-clock"])
def test_an_empty_range_is_refused(what: str) -> None:
    with pytest.raises(UsageError, match=rf"--minimum-{what} \(300\) is above --maximum-{what} \(200\)"):
        read(f"--minimum-{what}", "300", f"--maximum-{what}", "200")
    read(f"--minimum-{what}", "300", f"--maximum-{what}", "300")


def test_an_invalid_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"WATTLOOP_AGENT_IDENTITY: found 'me', expected one of process, pod"):
        read(WATTLOOP_AGENT_IDENTITY="me")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("socket", "expected TOML"),
        ('colour = "red"', "the key 'colour', expected one of socket, "),
        ("log_level = true", "log_level = True, expected a text or a number"),
        ('log_level = "loud"', "log_level = 'loud', expected one of debug"),
    ],
)
def test_an_invalid_config_file_is_named_with_its_content(tmp_path: Path, content: str, message: str) -> None:
    config = tmp_path / "agent.toml"
    config.write_text(content)
    with pytest.raises(InputError, match=message):
        read(WATTLOOP_AGENT_CONFIG=str(config))


def test_a_missing_config_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file or directory"):
        read("--config", str(tmp_path / "none.toml"))


def test_reports_need_a_token_and_a_node(tmp_path: Path) -> None:
    complete = ("--push-url", "https://operator:8080", "--push-token-file", str(tmp_path), "--node-name", "node-1")
    assert read(*complete).push_interval == 5.0
    for missing in (2, 4):
        with pytest.raises(UsageError, match="--push-url needs --push-token-file and --node-name"):
            read(*complete[:missing], *complete[missing + 2 :])


@pytest.mark.parametrize("url", ["operator:8080", "ftp://operator", "https://", "http://operator:none"])
def test_an_invalid_push_url_is_refused(url: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--push-url: found .*, expected http://HOST:PORT or https://HOST:PORT"):
        read("--push-url", url, "--push-token-file", str(tmp_path), "--node-name", "node-1")


def test_a_descriptor_that_is_not_open_is_refused_before_anything_starts(tmp_path: Path) -> None:
    arguments = ["--socket", str(tmp_path / "a.sock"), "--state-directory", str(tmp_path), "--ready-descriptor", "987"]
    done = subprocess.run(
        [sys.executable, "-m", "wattloop_agent", *arguments], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 2
    assert done.stderr == "wattloop agent: --ready-descriptor: found 987, expected an open file descriptor\n"
    assert list(tmp_path.iterdir()) == []
