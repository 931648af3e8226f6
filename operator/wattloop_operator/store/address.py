"""Addresses of databases: checks of URLs, and messages without passwords."""

import re
from pathlib import Path

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from wattloop.errors import UsageError

EXPECTED = (
    "a file, a folder that holds wattloop.db, sqlite:///PATH (sqlite:////PATH from the root) or "
    "postgresql://USER:PASSWORD@HOST:PORT/DATABASE"
)
# The file in the output folder of `wattloop run`.
FILE_NAME = "wattloop.db"
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
SECRET_OPTIONS = frozenset({"password", "sslpassword", "passfile"})


def database_url(url: str | Path) -> URL:
    """The checked URL of a database; a `Path` is a SQLite file, a text without a scheme its path or its folder's.

    Raises:
        UsageError: The URL is invalid, or is not of a supported database.

    Example:
        >>> database_url("postgres://planner@db/wattloop").drivername
        'postgresql+psycopg'
        >>> database_url("history.db").database
        'history.db'
    """
    if not isinstance(url, Path) and url and not _SCHEME.match(url):
        url = Path(url) / FILE_NAME if Path(url).is_dir() else Path(url)
    if isinstance(url, Path):
        return URL.create("sqlite+pysqlite", database=str(url))
    try:
        parsed = make_url(url.replace("postgres://", "postgresql://", 1) if url.startswith("postgres://") else url)
    except (ArgumentError, ValueError):
        # The text may contain a password, so the message does not repeat it.
        raise UsageError(f"the database's URL is invalid; expected {EXPECTED}") from None
    if parsed.drivername in {"sqlite", "sqlite+pysqlite"}:
        if parsed.query:
            raise UsageError(f"{display_name(parsed)}: found options, expected none after the file name")
        if not parsed.database or parsed.database == ":memory:":
            raise UsageError(
                f"{display_name(parsed)} names no file, and observations must outlive the process; expected {EXPECTED}"
            )
        return parsed.set(drivername="sqlite+pysqlite")
    if parsed.drivername in {"postgresql", "postgresql+psycopg"}:
        return parsed.set(drivername="postgresql+psycopg")
    raise UsageError(f"databases of the type {parsed.drivername!r} are not supported; expected {EXPECTED}")


def display_name(url: URL) -> str:
    """The URL for messages, without its driver and passwords.

    Example:
        >>> display_name(database_url("postgresql://planner:secret@db/wattloop?sslpassword=secret"))
        'postgresql://planner:***@db/wattloop'
    """
    shown = url.set(drivername=url.get_backend_name())
    return shown.difference_update_query(SECRET_OPTIONS & set(shown.query)).render_as_string(hide_password=True)


def without_secrets(text: str, url: URL) -> str:
    """A driver's message with every password of the URL masked.

    Example:
        >>> without_secrets("no entry for secret", database_url("postgresql://planner:secret@db/wattloop"))
        'no entry for ***'
    """
    secrets = [url.password, *(url.query.get(option) for option in SECRET_OPTIONS)]
    for secret in secrets:
        if isinstance(secret, str) and secret:
            text = text.replace(secret, "***")
    return text
