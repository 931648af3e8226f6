"""Removing what kube-proxy and the kubelet have written into iptables: every chain KUBE-…, and the jumps to it."""

import re
import subprocess

_PREFIX = "KUBE-"


def remove_chains() -> None:
    """Leaves the rules of all others as they are."""
    for family in ("iptables", "ip6tables"):
        saved = subprocess.run([f"{family}-save"], check=False, capture_output=True, text=True)
        removal = removal_of_chains(saved.stdout)
        if removal:
            subprocess.run(
                [f"{family}-restore", "--noflush"], input=removal, check=True, capture_output=True, text=True
            )


def removal_of_chains(saved: str) -> str:
    """The input of iptables-restore for an output of iptables-save; empty if nothing is to be removed.

    >>> print(removal_of_chains('''*nat
    ... :OUTPUT ACCEPT [1:2]
    ... :KUBE-SERVICES - [0:0]
    ... -A OUTPUT -j KUBE-SERVICES
    ... -A OUTPUT -j OTHERS
    ... -A KUBE-SERVICES -j ACCEPT
    ... COMMIT
    ... '''), end="")
    *nat
    :KUBE-SERVICES - [0:0]
    -D OUTPUT -j KUBE-SERVICES
    -X KUBE-SERVICES
    COMMIT
    """
    lines: list[str] = []
    for table in re.findall(r"^\*.*?^COMMIT$", saved, re.MULTILINE | re.DOTALL):
        name, *rest = table.splitlines()
        # Naming a chain empties it, and only an empty chain that nothing jumps to can be removed.
        chains = [line.split()[0].removeprefix(":") for line in rest if line.startswith(f":{_PREFIX}")]
        jumps = [f"-D {line[3:]}" for line in rest if re.match(rf"-A (?!{_PREFIX}).* -j {_PREFIX}", line)]
        if chains:
            lines += [name, *(f":{chain} - [0:0]" for chain in chains), *jumps, *(f"-X {chain}" for chain in chains)]
            lines.append("COMMIT")
    return "".join(f"{line}\n" for line in lines)
