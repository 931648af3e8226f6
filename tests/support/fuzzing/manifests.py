"""Fuzz target: the bytes of a manifest for `wattloop validate` and `wattloop run`."""

import json
from pathlib import Path

from support.fuzzing.target import DefectError
from wattloop_operator.api.manifests import check_bytes, check_text
from wattloop_operator.api.schemas import Kind
from wattloop_operator.command_line.validate import not_supported

TESTS = Path(__file__).parents[2]
SOURCE = "manifest.yaml"
MAX_LINE_CHARACTERS = 4096


class ManifestTarget:
    """Checks manifests as `wattloop validate` does.

    Properties: it raises no exception. Each problem is a short printable line. The wire form of a
    valid object is valid, and the models read it unchanged.
    """

    tokens = (
        b"&a ", b"*a", b"<<: *a", b"!!int ", b"!!float ", b"!!bool ", b"!!null ", b"!!binary ", b"!!str ", b"? ", b"- ",
        b": ", b"|\n", b">-\n", b"---\n", b"...\n", b"%YAML 1.1\n", b"{", b"}", b"[", b"]", b"0x", b"0o", b"0b", b"_",
        b"1e999", b".inf", b".nan", b"-.5", b"9" * 20, b"9" * 5000, b"f" * 5000, b"null", b"~", b"yes", b"on",
        b"2026-03-01T12:00:00Z", b"apiVersion: wattloop.dev/v1alpha1\n", b"kind: RecurringTrainingJob\n", b"spec",
        b"metadata", b"name", b"schedule", b"timeZone", b"* * * * *", b"\xc2\xb2", b"\xd9\xa3", b"\xef\xbb\xbf",
        b"\xe2\x80\xa8", b'"\\e[31m\\a\\ud800"', b"\xf0\x9f\x92\xa9"
    )  # fmt: skip

    def seeds(self) -> list[bytes]:
        """All manifests of the tests, and texts that an earlier version rejected late or not at all."""
        corpus = sorted((TESTS / "manifests").glob("*/*.yaml"))
        aliases = "a0: &a0 [x, x, x, x, x, x, x, x]\n" + "".join(
            f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 8)}]\n" for level in range(1, 9)
        )
        texts = [aliases, "[" * 400, "a: -_\n", "a: !!int x\n", "a: " + "9" * 5000 + "\n", "a: 0x" + "f" * 5000 + "\n"]
        return [path.read_bytes() for path in corpus] + [text.encode() for text in texts]

    def check(self, data: bytes) -> None:
        result = check_bytes(SOURCE, data, workloads=True)
        for problem in result.problems:
            line = str(problem)
            if not problem.expected:
                raise DefectError(f"a problem without an expected value: {line}")
            _check_line(line)
        for name in result.skipped:
            _check_line(name)
        for manifest in result.valid:
            _check_valid(manifest)

    def close(self) -> None:
        """See `Target`."""


def _check_line(line: str) -> None:
    if len(line) > MAX_LINE_CHARACTERS or not line.isprintable():
        raise DefectError(f"a line that is too long or not printable: {len(line)} characters: {line[:200]!r}")


def _check_valid(manifest: Kind) -> None:
    not_supported(manifest)
    wire = manifest.to_wire()
    if type(manifest).from_wire(wire) != manifest:
        raise DefectError(f"a {manifest.kind} whose wire form is not read unchanged: {wire}")
    problems = check_text(SOURCE, json.dumps(wire), workloads=True).problems
    if problems:
        raise DefectError(f"a valid {manifest.kind} whose wire form is invalid: {problems}")
