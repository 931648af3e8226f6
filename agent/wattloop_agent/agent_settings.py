"""The agent's settings: option, else ``WATTLOOP_AGENT_<NAME>``, else config file, else default.

`SETTINGS` is the one list of them; options, variables, the file's keys and docs/internals/agent.md's table
come from it.
"""

import argparse
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from wattloop.commands.settings import (
    MAX_DIGITS,
    Address,
    Setting,
    address_or_off,
    one_of,
    path,
    positive,
    seconds,
    values_of,
)
from wattloop.commands.settings import add_options as add_setting_options
from wattloop.errors import UsageError

PREFIX = "WATTLOOP_AGENT_"


@dataclass(frozen=True)
class AgentSettings:
    """The values of `SETTINGS`."""

    socket: Path
    state_directory: Path
    lock_directory: Path
    monitor_state_directory: Path
    part: str
    power_controller_socket: Path | None
    power_controller_uids: frozenset[int]
    identity: str
    kubelet_socket: Path
    pod_logs: Path
    metrics_bind: Address | None
    push_url: str
    push_token_file: Path | None
    push_ca_file: Path | None
    push_interval: float
    node_name: str
    nvml_library: Path | None
    minimum_power_limit: float | None
    maximum_power_limit: float | None
    minimum_graphics_clock: float | None
    maximum_graphics_clock: float | None
    minimum_memory_clock: float | None
    maximum_memory_clock: float | None
    sample_interval: float
    counter_interval: float
    heartbeat_timeout: float
    log_format: str
    log_level: str


def _uids(text: str) -> frozenset[int]:
    ids = [each.strip() for each in text.split(",")]
    if not all(each.isdecimal() and len(each) <= MAX_DIGITS for each in ids):
        raise ValueError("user ids, separated by commas")
    return frozenset(int(each) for each in ids)


def _runtime_folder() -> Path:
    if os.geteuid() == 0:
        return Path("/run/wattloop")
    return Path(os.environ["XDG_RUNTIME_DIR"]) / "wattloop" if os.environ.get("XDG_RUNTIME_DIR") else _state_folder()


def _state_folder() -> Path:
    if os.geteuid() == 0:
        return Path("/var/lib/wattloop/agent")
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "wattloop" / "agent"


def _lock_folder() -> Path:
    # Not the socket's folder, which pods can open: a process that can open a file can lock it.
    return Path("/run/wattloop-gpus") if os.geteuid() == 0 else _runtime_folder()


SETTINGS = (
    Setting("socket", path, None, "the socket to serve; default: agent.sock in /run/wattloop (root) or the user's "
            "runtime folder", "PATH"),
    Setting("state-directory", path, None, "where leases are stored, to survive a crash; default: "
            "/var/lib/wattloop/agent (root) or the user's state folder", "PATH"),
    Setting("lock-directory", path, None, "where the node's only power controller takes its lock, with any state "
            "folder; default: /run/wattloop-gpus (root) or the user's runtime folder", "PATH"),
    Setting("monitor-state-directory", path, None, "where the monitor stores its energy ledger, so that a restart "
            "loses no energy; default: monitor in the state directory", "PATH"),
    Setting("part", one_of("both", "power-controller", "monitor"), "both", "which part to run: in a pod the "
            "privileged power controller and the unprivileged monitor are two containers; both: the monitor starts a "
            "power controller of its own", "PART"),
    Setting("power-controller-socket", path, None, "with --part power-controller or monitor: the socket between "
            "the two", "PATH"),
    Setting("power-controller-uids", _uids, None, "with --part power-controller: the users that may connect; default: "
            "its own user", "UID,…"),
    Setting("identity", one_of("process", "pod"), "process", "what owns leases: a process of this machine, or a pod "
            "of this node", "KIND"),
    Setting("kubelet-socket", path, "/var/lib/kubelet/pod-resources/kubelet.sock", "with --identity pod: the kubelet's "
            "pod-resources socket, which reports which pod has which GPU", "PATH"),
    Setting("pod-logs", path, "/var/log/pods", "with --identity pod: the kubelet's folder of pod logs, which names "
            "pods with their uids", "PATH"),
    Setting("metrics-bind", address_or_off, "off", "where to serve Prometheus metrics, HOST:PORT or off", "ADDRESS"),
    Setting("push-url", str, "", "the operator's reporting API, http://… or https://…, to report pods' energy to; "
            "default: no reports", "URL"),
    Setting("push-token-file", path, None, "with --push-url: the token to send, read for each report", "PATH"),
    Setting("push-ca-file", path, None, "with --push-url: the certificates (PEM) to verify it with; default: "
            "the system's", "PATH"),
    Setting("push-interval", seconds(0.1, 3600), "5", "with --push-url: the interval of reports", "SECONDS"),
    Setting("node-name", str, "", "with --push-url: the name of this Kubernetes node", "NAME"),
    Setting("nvml-library", path, None, "the libnvidia-ml.so.1 to load, in place of the system's", "PATH"),
    Setting("minimum-power-limit", positive, None, "refuse power limits below this", "WATTS"),
    Setting("maximum-power-limit", positive, None, "refuse power limits above this", "WATTS"),
    Setting("minimum-graphics-clock", positive, None, "refuse graphics clocks below this", "MEGAHERTZ"),
    Setting("maximum-graphics-clock", positive, None, "refuse graphics clocks above this", "MEGAHERTZ"),
    Setting("minimum-memory-clock", positive, None, "refuse memory clocks below this", "MEGAHERTZ"),
    Setting("maximum-memory-clock", positive, None, "refuse memory clocks above this", "MEGAHERTZ"),
    Setting("sample-interval", seconds(0.01, 3600), "1", "the interval at which GPUs are sampled", "SECONDS"),
    Setting("counter-interval", seconds(0, 60), "1", "how often a GPU's energy counter is read, which costs "
            "up to 15 ms of CPU time; in between its energy is derived from power. 0: at each sample", "SECONDS"),
    Setting("heartbeat-timeout", seconds(0.5, 600), "4", "how long the two parts wait for each other: without the "
            "monitor the power controller restores every GPU; a power controller that hangs is replaced", "SECONDS"),
    Setting("log-format", one_of("text", "json"), "text", "the format of log lines, text or json", "FORMAT"),
    Setting("log-level", one_of("debug", "info", "warning", "error"), "info", "the lowest level logged", "LEVEL")
)  # fmt: skip


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add an option for each setting, and ``--config``."""
    add_setting_options(parser, SETTINGS, PREFIX)


def settings_from(arguments: argparse.Namespace, environment: Mapping[str, str]) -> AgentSettings:
    """The settings in force.

    Raises:
        UsageError: An option or a variable has an invalid value.
        InputError: The config file is no TOML, or a key or a value in it is wrong.
    """
    values = values_of(SETTINGS, PREFIX, arguments, environment)
    values["socket"] = values["socket"] or _runtime_folder() / "agent.sock"
    values["state_directory"] = values["state_directory"] or _state_folder()
    values["lock_directory"] = values["lock_directory"] or _lock_folder()
    values["monitor_state_directory"] = values["monitor_state_directory"] or values["state_directory"] / "monitor"
    values["power_controller_uids"] = values["power_controller_uids"] or frozenset({os.geteuid()})
    if values["part"] != "both" and values["power_controller_socket"] is None:
        raise UsageError(f"--part {values['part']} needs --power-controller-socket, the socket between the two parts")
    settings = AgentSettings(**values)
    _check_ranges(values)
    if settings.push_url:
        _check_push(settings)
    return settings


def _check_ranges(values: Mapping[str, float | None]) -> None:
    for what in ("power-limit", "graphics-clock", "memory-clock"):
        minimum, maximum = (values[f"{end}_{what.replace('-', '_')}"] for end in ("minimum", "maximum"))
        if minimum is not None and maximum is not None and minimum > maximum:
            raise UsageError(
                f"--minimum-{what} ({minimum:g}) is above --maximum-{what} ({maximum:g}); no value is within both"
            )


def _check_push(settings: AgentSettings) -> None:
    try:
        address = urlsplit(settings.push_url)
        valid = address.scheme in ("http", "https") and address.hostname and address.port != 0
    except ValueError:  # an invalid port
        valid = False
    if not valid:
        raise UsageError(f"--push-url: found {settings.push_url!r}, expected http://HOST:PORT or https://HOST:PORT")
    if settings.push_token_file is None or not settings.node_name:
        raise UsageError("--push-url needs --push-token-file and --node-name, which identify the agent and its node")
