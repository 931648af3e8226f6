"""kubectl and helm, run as one user of one cluster."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_TIMEOUT_SECONDS = 200.0


class CommandError(Exception):
    """The command failed."""

    def __init__(self, command: Sequence[str], stdout: str, stderr: str) -> None:
        super().__init__(f"{' '.join(command)}\n{stdout}{stderr}")
        self.stderr = stderr


class ClusterCommand:
    """A program that reads a kubeconfig. A call runs it with arguments and returns its standard output.

    Args:
        home: Its home folder, for caches; the user's own home is not touched.
    """

    def __init__(self, program: Path, kubeconfig: Path, home: Path) -> None:
        self.program = program
        self.kubeconfig = kubeconfig
        self.home = home

    def as_user(self, kubeconfig: Path) -> ClusterCommand:
        """The same program as another user."""
        return type(self)(self.program, kubeconfig, self.home)

    def __call__(
        self, *arguments: str, namespace: str | None = None, stdin: str | None = None, timeout: float = _TIMEOUT_SECONDS
    ) -> str:
        """Run the program."""
        command = [str(self.program), *arguments]
        if namespace is not None:
            command.append(f"--namespace={namespace}")
        completed = subprocess.run(
            command, input=stdin, capture_output=True, text=True, check=False, timeout=timeout, env=self._environment()
        )
        if completed.returncode != 0:
            raise CommandError(command, completed.stdout, completed.stderr)
        return completed.stdout

    def json(self, *arguments: str, namespace: str | None = None) -> Any:
        """Run the program with `--output=json` and parse its output."""
        return json.loads(self(*arguments, "--output=json", namespace=namespace))

    def apply(self, *manifests: Mapping[str, Any], namespace: str | None = None, dry_run: bool = False) -> str:
        """Apply objects with `kubectl apply --server-side`; returns the applied objects, one per line.

        Args:
            dry_run: Have the server validate them without storing them.
        """
        arguments = ["apply", "--server-side", "--filename=-", *(["--dry-run=server"] if dry_run else [])]
        # JSON is YAML, and is written much faster.
        return self(*arguments, namespace=namespace, stdin="\n---\n".join(map(json.dumps, manifests)))

    def _environment(self) -> dict[str, str]:
        variables = {"PATH": os.environ.get("PATH", ""), "HOME": str(self.home), "KUBECONFIG": str(self.kubeconfig)}
        # They end before Go's garbage collector has freed anything that is needed.
        return variables | {"GOGC": "off"}
