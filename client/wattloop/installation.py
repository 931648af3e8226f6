"""Where this installation of Wattloop came from, for messages that name what to install.

Wattloop is on no public package index, so a bare name would install nothing, or another project.
"""

import shlex
import sys


def how_to_install(extra: str = "", python: str = sys.executable) -> str:
    """The next step for a missing dependency, an extra or Wattloop alone: a command where the origin is known."""
    requirement = _requirement(f"[{extra}]" if extra else "", here=python == sys.executable)
    if requirement is None:
        wanted = f"the extra [{extra}] of Wattloop" if extra else "Wattloop"
        return f"install {wanted} for {python} from a clone or a wheel (README.md, Install)"
    return f"install it with: {_installer(python)} {' '.join(shlex.quote(word) for word in requirement)}"


def _installer(python: str) -> str:
    from importlib.util import find_spec  # noqa: PLC0415 - for messages alone

    # An environment that uv made has no pip.
    if python == sys.executable and find_spec("pip") is None:
        return f"uv pip install --python {shlex.quote(python)}"
    return f"{shlex.quote(python)} -m pip install"


def _requirement(extras: str, *, here: bool) -> list[str] | None:
    """The arguments of pip that name this installation's origin; None where it is not known or gone."""
    from json import loads  # noqa: PLC0415 - for messages alone
    from pathlib import Path  # noqa: PLC0415 - as above
    from urllib.parse import unquote, urlsplit  # noqa: PLC0415 - as above

    try:
        origin = loads(_direct_url())
        url, scheme = str(origin["url"]), urlsplit(str(origin["url"])).scheme
        path = unquote(urlsplit(url).path)
    except (ValueError, TypeError, KeyError):
        return None
    if scheme == "file" and not Path(path).exists():
        return None
    if "dir_info" in origin:
        # A training keeps its version when the clone changes.
        return [*(["--editable"] if here and origin["dir_info"].get("editable") else []), f"{path}{extras}"]
    if "vcs_info" in origin:
        url = f"{origin['vcs_info'].get('vcs', 'git')}+{url}@{origin['vcs_info'].get('commit_id', 'HEAD')}"
    return [f"wattloop{extras} @ {url}"]


def _direct_url() -> str:
    """The origin that the installer recorded, as in PEP 610; empty where it recorded none."""
    from importlib.metadata import PackageNotFoundError, distribution  # noqa: PLC0415 - for messages alone

    try:
        return distribution("wattloop").read_text("direct_url.json") or ""
    except PackageNotFoundError:
        return ""
