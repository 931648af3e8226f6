"""Writes a manifest as YAML with comments, which kubectl, YAML 1.1 and YAML 1.2 read alike."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.scalarstring import DoubleQuotedScalarString, LiteralScalarString

from wattloop.printable import printable
from wattloop_operator.api.checks.manifest_problem import Path

# Strings that no version of YAML takes for anything else; all others are quoted.
PLAIN = re.compile(r"^[A-Za-z/](?:(?:[A-Za-z0-9_./ -]|:(?=[^ ]))*[A-Za-z0-9_./-])?$")
WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
# Lines of a script, which a literal block shows as they are.
LINES = re.compile(r"^(?:[!-~](?:[ -~]*[!-~])?\n)(?:(?:[ -~]*[!-~])?\n)*(?:[ -~]*[!-~])\n?$")
INDENT = 2


def manifest_text(manifest: Mapping[str, Any], header: list[str], remarks: Mapping[Path, str]) -> str:
    """The text of a manifest.

    Args:
        manifest: The manifest, of JSON types.
        header: Lines of the comment before it.
        remarks: Comments above fields, by path.

    Example:
        >>> print(manifest_text({"a": {"b": "on", "c": "5"}}, ["Made."], {("a", "b"): "Set it."}), end="")
        # Made.
        a:
          # Set it.
          b: "on"
          c: "5"
    """
    yaml = YAML()
    yaml.width = 4096
    # No aliases: not every tool that reads manifests supports them.
    yaml.representer.ignore_aliases = lambda _: True
    yaml.indent(mapping=INDENT, sequence=2 * INDENT, offset=INDENT)
    stream = io.StringIO()
    yaml.dump(_commented(manifest, (), remarks), stream)
    return "".join(f"# {printable(line, len(line))}\n" for line in header) + stream.getvalue()


def _commented(value: Any, path: Path, remarks: Mapping[Path, str]) -> Any:
    """The value in the types of the YAML library, with its comments and quotes."""
    if isinstance(value, Mapping):
        # A key is a string too, and may need quotes.
        made = CommentedMap({_string(name): _commented(part, (*path, name), remarks) for name, part in value.items()})
        for name in value:
            remark = remarks.get((*path, name))
            if remark is not None:
                made.yaml_set_comment_before_after_key(name, before=remark, indent=INDENT * len(path))
        return made
    if isinstance(value, list):
        return CommentedSeq(_commented(part, (*path, index), remarks) for index, part in enumerate(value))
    return _string(value) if isinstance(value, str) else value


def _string(text: str) -> str:
    if PLAIN.match(text) and text.lower() not in WORDS:
        return text
    quoted: str = LiteralScalarString(text) if LINES.match(text) else DoubleQuotedScalarString(text)
    return quoted
