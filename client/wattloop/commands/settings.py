"""Settings of a long-running command: of an option, else an environment variable, a config file or a default."""

import argparse
import math
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wattloop.errors import InputError, UsageError
from wattloop.files.reading import read_text
from wattloop.wire.message_fields import json_problem, shown

MAX_CONFIG_BYTES = 1024 * 1024
# Python rejects integers of more than 4300 digits; no setting needs nearly as many.
MAX_DIGITS = 80


@dataclass(frozen=True)
class Address:
    """An address to listen on; port 0 selects a free port."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches it."""
        # Here, because most commands listen on nothing.
        import ipaddress  # noqa: PLC0415

        try:
            return self.host == "localhost" or ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True)
class Setting:
    """One setting.

    Attributes:
        read: Parses the text of a value; raises `ValueError` with a description of valid values.
        default: Text of the default; None without one.
    """

    name: str
    read: Callable[[str], Any]
    default: str | None
    help: str
    metavar: str

    @property
    def key(self) -> str:
        """The setting's key in the config file and among the values."""
        return self.name.replace("-", "_")

    def variable(self, prefix: str) -> str:
        """The setting's environment variable."""
        return prefix + self.key.upper()


def add_options(parser: argparse.ArgumentParser, settings: Sequence[Setting], prefix: str) -> None:
    """Add an option for each setting, and ``--config``."""
    parser.add_argument("--config", type=Path, metavar="FILE", help=f"a TOML file of settings ({prefix}CONFIG)")
    for setting in settings:
        default = f"; default: {setting.default}" if setting.default else ""
        description = f"{setting.help} ({setting.variable(prefix)}{default})"
        parser.add_argument(f"--{setting.name}", metavar=setting.metavar, help=description)


def values_of(
    settings: Sequence[Setting], prefix: str, arguments: argparse.Namespace, environment: Mapping[str, str]
) -> dict[str, Any]:
    """The effective values by key; None for a setting without a value and a default.

    Raises:
        UsageError: An option or a variable has an invalid value.
        InputError: The config file is not valid TOML, or has an unknown key or an invalid value.
    """
    config = arguments.config or environment.get(f"{prefix}CONFIG")
    file = _file_values(Path(config), settings) if config else {}
    values: dict[str, Any] = {}
    for setting in settings:
        source, text = f"--{setting.name}", getattr(arguments, setting.key)
        if text is None:
            source = setting.variable(prefix)
            text = environment.get(source) or None
        if text is not None:
            try:
                values[setting.key] = setting.read(text)
            except ValueError as error:
                raise UsageError(f"{source}: found {shown(text)}, expected {error}") from error
        elif setting.key in file:
            values[setting.key] = file[setting.key]
        else:
            values[setting.key] = None if setting.default is None else setting.read(setting.default)
    return values


def one_of(*choices: str) -> Callable[[str], str]:
    """Parses one of several choices."""

    def read(text: str) -> str:
        if text not in choices:
            raise ValueError(f"one of {', '.join(choices)}")
        return text

    return read


def integer(minimum: int, maximum: int) -> Callable[[str], int]:
    """Parses an integer within bounds."""

    def read(text: str) -> int:
        if not text.isdecimal() or len(text) > MAX_DIGITS or not minimum <= int(text) <= maximum:
            raise ValueError(f"a whole number from {minimum} to {maximum}")
        return int(text)

    return read


def positive(text: str) -> float:
    """Parse a number above 0.

    Example:
        >>> positive("0.5")
        0.5
    """
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise ValueError("a number above 0")
    return value


def seconds(minimum: float, maximum: float) -> Callable[[str], float]:
    """Parses a duration within bounds."""

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not minimum <= value <= maximum:
            raise ValueError(f"seconds, from {minimum:.9g} to {maximum:.9g}")
        return value

    return read


def path(text: str) -> Path:
    """Parse a path; rejects an empty one, which would mean the current folder."""
    if not text:
        raise ValueError("a path")
    return Path(text)


def address(text: str) -> Address:
    """Parse an address to listen on.

    Example:
        >>> address("127.0.0.1:9402")
        Address(host='127.0.0.1', port=9402)
    """
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or len(port) > MAX_DIGITS or int(port) > 65535:
        raise ValueError("HOST:PORT, such as 127.0.0.1:9402")
    return Address(host.strip("[]"), int(port))


def address_or_off(text: str) -> Address | None:
    """Parse an address to listen on, or `off`."""
    if text == "off":
        return None
    try:
        return address(text)
    except ValueError as error:
        raise ValueError(f"{error}, or off") from error


def _file_values(path: Path, settings: Sequence[Setting]) -> dict[str, Any]:
    text = read_text(path, MAX_CONFIG_BYTES, "a TOML file")
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(str(path), found=str(error), expected="TOML") from error
    except (ValueError, RecursionError) as error:
        raise InputError(str(path), found=json_problem(error), expected="TOML") from error
    known = {setting.key: setting for setting in settings}
    values = {}
    for key, value in content.items():
        if key not in known:
            raise InputError(str(path), found=f"the key {key!r}", expected=f"one of {', '.join(known)}")
        try:
            if isinstance(value, bool) or not isinstance(value, (str, int, float)):
                raise ValueError("a text or a number")  # noqa: TRY004, TRY301 - bad input, reported with its place
            values[key] = known[key].read(str(value))
        except ValueError as error:
            raise InputError(str(path), found=f"{key} = {shown(value)}", expected=str(error)) from error
    return values
