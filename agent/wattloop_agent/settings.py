"""The agent's settings: an option, else ``WATTLOOP_AGENT_<NAME>``, else the config file, else the default.

`SETTINGS` is the one list of them; options, variables, the file's keys and docs/agent.md's table come from it.
"""

from __future__ import annotations

import argparse
import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wattloop.errors import InputError, UsageError

PREFIX = "WATTLOOP_AGENT_"


@dataclass(frozen=True)
class Address:
    """Where to listen for HTTP."""

    host: str
    port: int


@dataclass(frozen=True)
class Settings:
    """What `SETTINGS` describes, with the values in force."""

    socket: Path
    state_directory: Path
    part: str
    setter_socket: Path | None
    setter_uids: frozenset[int]
    identity: str
    kubelet_socket: Path
    pod_logs: Path
    metrics_bind: Address | None
    nvml_library: Path | None
    minimum_power_limit: float | None
    maximum_power_limit: float | None
    sample_interval: float
    heartbeat_timeout: float
    log_format: str
    log_level: str


@dataclass(frozen=True)
class Setting:
    """One setting: its name with dashes, how its text is read, its default's text (None: none), what it means."""

    name: str
    read: Callable[[str], Any]
    default: str | None
    help: str
    metavar: str

    @property
    def key(self) -> str:
        """Its name in the config file and in `Settings`."""
        return self.name.replace("-", "_")

    @property
    def variable(self) -> str:
        """Its environment variable."""
        return PREFIX + self.key.upper()


def _one_of(*choices: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in choices:
            raise ValueError(f"one of {', '.join(choices)}")
        return text

    return read


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise ValueError("a number above 0")
    return value


def _address(text: str) -> Address | None:
    if text == "off":
        return None
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise ValueError("HOST:PORT, for example 127.0.0.1:9402, or off")
    return Address(host.strip("[]"), int(port))


def _uids(text: str) -> frozenset[int]:
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() for word in words):
        raise ValueError("user ids, separated by commas")
    return frozenset(int(word) for word in words)


def _runtime_folder() -> Path:
    if os.geteuid() == 0:
        return Path("/run/wattloop")
    return Path(os.environ["XDG_RUNTIME_DIR"]) / "wattloop" if os.environ.get("XDG_RUNTIME_DIR") else _state_folder()


def _state_folder() -> Path:
    if os.geteuid() == 0:
        return Path("/var/lib/wattloop/agent")
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "wattloop" / "agent"


SETTINGS = (
    Setting("socket", Path, None, "the socket to serve; default: agent.sock in /run/wattloop (root) or the user's "
            "runtime folder", "PATH"),
    Setting("state-directory", Path, None, "where leases are kept, so that they outlive a crash; default: "
            "/var/lib/wattloop/agent (root) or the user's state folder", "PATH"),
    Setting("part", _one_of("both", "setter", "reader"), "both", "which part to run: in a pod the privileged setter "
            "and the unprivileged reader are two containers; both: the reader starts a setter of its own", "PART"),
    Setting("setter-socket", Path, None, "with --part setter or reader: the socket between the two", "PATH"),
    Setting("setter-uids", _uids, None, "with --part setter: whose connections it takes; default: its own user's",
            "UID,…"),
    Setting("identity", _one_of("process", "pod"), "process", "what an owner is: a process of this machine, or a pod "
            "of this node", "KIND"),
    Setting("kubelet-socket", Path, "/var/lib/kubelet/pod-resources/kubelet.sock", "with --identity pod: the kubelet's "
            "pod-resources socket, which says which GPUs are whose", "PATH"),
    Setting("pod-logs", Path, "/var/log/pods", "with --identity pod: the kubelet's folder of pod logs, which says "
            "which pod has which uid", "PATH"),
    Setting("metrics-bind", _address, "off", "where to serve Prometheus metrics, HOST:PORT or off", "ADDRESS"),
    Setting("nvml-library", Path, None, "the libnvidia-ml.so.1 to load, in place of the system's", "PATH"),
    Setting("minimum-power-limit", _positive, None, "refuse power limits below this", "WATTS"),
    Setting("maximum-power-limit", _positive, None, "refuse power limits above this", "WATTS"),
    Setting("sample-interval", _positive, "1", "how often the metrics' readings are taken", "SECONDS"),
    Setting("heartbeat-timeout", _positive, "4", "how long the two parts wait for each other: without the reader "
            "the setter gives everything back, a setter that hangs is replaced", "SECONDS"),
    Setting("log-format", _one_of("text", "json"), "text", "how log lines look, text or json", "FORMAT"),
    Setting("log-level", _one_of("debug", "info", "warning", "error"), "info", "the least level logged", "LEVEL"),
)  # fmt: skip


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add an option for each setting, and ``--config``."""
    parser.add_argument("--config", type=Path, metavar="FILE", help=f"a TOML file of settings ({PREFIX}CONFIG)")
    for setting in SETTINGS:
        told = f"{setting.help} ({setting.variable}" + (f"; default: {setting.default})" if setting.default else ")")
        parser.add_argument(f"--{setting.name}", metavar=setting.metavar, help=told)


def settings_from(arguments: argparse.Namespace, environment: Mapping[str, str]) -> Settings:
    """The settings in force.

    Raises:
        UsageError: An option or a variable has a value that it can't have.
        InputError: The config file is no TOML, or a key or a value in it is wrong.
    """
    config = arguments.config or environment.get(PREFIX + "CONFIG")
    file = _file_values(Path(config)) if config else {}
    values: dict[str, Any] = {}
    for setting in SETTINGS:
        given = _given(setting, arguments, environment, file)
        values[setting.key] = setting.read(setting.default) if given is None and setting.default else given
    values["socket"] = values["socket"] or _runtime_folder() / "agent.sock"
    values["state_directory"] = values["state_directory"] or _state_folder()
    values["setter_uids"] = values["setter_uids"] or frozenset({os.geteuid()})
    if values["part"] != "both" and values["setter_socket"] is None:
        raise UsageError(f"--part {values['part']} needs --setter-socket: where the two parts meet")
    return Settings(**values)


def _given(
    setting: Setting, arguments: argparse.Namespace, environment: Mapping[str, str], file: Mapping[str, Any]
) -> Any:
    option = getattr(arguments, setting.key)
    variable = environment.get(setting.variable)
    for source, text in ((f"--{setting.name}", option), (setting.variable, variable or None)):
        if text is not None:
            try:
                return setting.read(text)
            except ValueError as error:
                raise UsageError(f"{source}: found {text!r}, expected {error}") from error
    return file.get(setting.key)


def _file_values(path: Path) -> dict[str, Any]:
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(str(path), found=error.strerror or str(error), expected="a readable TOML file") from error
    except ValueError as error:
        raise InputError(str(path), found=str(error), expected="TOML") from error
    known = {setting.key: setting for setting in SETTINGS}
    values = {}
    for key, value in content.items():
        if key not in known:
            raise InputError(str(path), found=f"the key {key!r}", expected=f"one of {', '.join(known)}")
        try:
            values[key] = known[key].read(_text(value))
        except ValueError as error:
            raise InputError(str(path), found=f"{key} = {value!r}", expected=str(error)) from error
    return values


def _text(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise ValueError("a text or a number")  # noqa: TRY004 - bad input, reported with its place
    return str(value)
