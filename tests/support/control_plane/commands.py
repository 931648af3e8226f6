"""kubectl and helm as one user of one cluster."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

_TIMEOUT_SECONDS = 200.0


class CommandError(Exception):
    """The command ended with an error.

    Attributes:
        stderr: What it said.
    """

    def __init__(self, command: Sequence[str], stdout: str, stderr: str) -> None:
        super().__init__(f"{' '.join(command)}\n{stdout}{stderr}")
        self.stderr = stderr


class ClusterCommand:
    """A program that reads a kubeconfig. Called with its arguments, it returns what was printed on stdout.

    Args:
        program: The program.
        kubeconfig: Who it acts as, and where.
        home: Its home folder, where it keeps caches; nothing of the person's own is read or written.
    """

    def __init__(self, program: Path, kubeconfig: Path, home: Path) -> None:
        self.program = program
        self.kubeconfig = kubeconfig
        self.home = home

    def as_user(self, kubeconfig: Path) -> ClusterCommand:
        """The same program as someone else."""
        return type(self)(self.program, kubeconfig, self.home)

    def __call__(
        self, *arguments: str, namespace: str | None = None, stdin: str | None = None, timeout: float = _TIMEOUT_SECONDS
    ) -> str:
        """Runs the program.

        Raises:
            CommandError: It ended with another exit code than 0.
        """
        command = [str(self.program), *arguments]
        if namespace is not None:
            command.append(f"--namespace={namespace}")
        answer = subprocess.run(
            command, input=stdin, capture_output=True, text=True, check=False, timeout=timeout, env=self._environment()
        )
        if answer.returncode != 0:
            raise CommandError(command, answer.stdout, answer.stderr)
        return answer.stdout

    def json(self, *arguments: str, namespace: str | None = None) -> Any:
        """Runs the program with `--output=json` and parses what it printed."""
        return json.loads(self(*arguments, "--output=json", namespace=namespace))

    def apply(self, *manifests: Mapping[str, Any], namespace: str | None = None, dry_run: bool = False) -> str:
        """`kubectl apply` of objects, on the server's side; what was applied, one a line.

        Args:
            manifests: The objects.
            namespace: Where, for those that do not say.
            dry_run: Let the server check them and keep nothing.
        """
        arguments = ["apply", "--server-side", "--filename=-", *(["--dry-run=server"] if dry_run else [])]
        return self(*arguments, namespace=namespace, stdin=yaml.safe_dump_all(manifests))

    def _environment(self) -> dict[str, str]:
        return {"PATH": os.environ.get("PATH", ""), "HOME": str(self.home), "KUBECONFIG": str(self.kubeconfig)}
