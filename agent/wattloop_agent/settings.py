"""The agent's settings: an option, else ``WATTLOOP_AGENT_<NAME>``, else the config file, else the default.

`SETTINGS` is the one list of them; options, variables, the file's keys and docs/agent.md's table come from it.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from wattloop.commands.settings import Address, Setting, address_or_off, one_of, positive, values_of
from wattloop.commands.settings import add_options as add_setting_options
from wattloop.errors import UsageError

PREFIX = "WATTLOOP_AGENT_"


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
    Setting("part", one_of("both", "setter", "reader"), "both", "which part to run: in a pod the privileged setter "
            "and the unprivileged reader are two containers; both: the reader starts a setter of its own", "PART"),
    Setting("setter-socket", Path, None, "with --part setter or reader: the socket between the two", "PATH"),
    Setting("setter-uids", _uids, None, "with --part setter: whose connections it takes; default: its own user's",
            "UID,…"),
    Setting("identity", one_of("process", "pod"), "process", "what an owner is: a process of this machine, or a pod "
            "of this node", "KIND"),
    Setting("kubelet-socket", Path, "/var/lib/kubelet/pod-resources/kubelet.sock", "with --identity pod: the kubelet's "
            "pod-resources socket, which says which GPUs are whose", "PATH"),
    Setting("pod-logs", Path, "/var/log/pods", "with --identity pod: the kubelet's folder of pod logs, which says "
            "which pod has which uid", "PATH"),
    Setting("metrics-bind", address_or_off, "off", "where to serve Prometheus metrics, HOST:PORT or off", "ADDRESS"),
    Setting("nvml-library", Path, None, "the libnvidia-ml.so.1 to load, in place of the system's", "PATH"),
    Setting("minimum-power-limit", positive, None, "refuse power limits below this", "WATTS"),
    Setting("maximum-power-limit", positive, None, "refuse power limits above this", "WATTS"),
    Setting("sample-interval", positive, "1", "how often the metrics' readings are taken", "SECONDS"),
    Setting("heartbeat-timeout", positive, "4", "how long the two parts wait for each other: without the reader "
            "the setter gives everything back, a setter that hangs is replaced", "SECONDS"),
    Setting("log-format", one_of("text", "json"), "text", "how log lines look, text or json", "FORMAT"),
    Setting("log-level", one_of("debug", "info", "warning", "error"), "info", "the least level logged", "LEVEL"),
)  # fmt: skip


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add an option for each setting, and ``--config``."""
    add_setting_options(parser, SETTINGS, PREFIX)


def settings_from(arguments: argparse.Namespace, environment: Mapping[str, str]) -> Settings:
    """The settings in force.

    Raises:
        UsageError: An option or a variable has a value that it can't have.
        InputError: The config file is no TOML, or a key or a value in it is wrong.
    """
    values = values_of(SETTINGS, PREFIX, arguments, environment)
    values["socket"] = values["socket"] or _runtime_folder() / "agent.sock"
    values["state_directory"] = values["state_directory"] or _state_folder()
    values["setter_uids"] = values["setter_uids"] or frozenset({os.geteuid()})
    if values["part"] != "both" and values["setter_socket"] is None:
        raise UsageError(f"--part {values['part']} needs --setter-socket: where the two parts meet")
    return Settings(**values)
