#!/usr/bin/env python3
"""Finds or builds the programs of the cluster tests: the Kubernetes control plane, etcd, Helm, and those of a node.

A program comes from the first place that has it:

1. the folder of KUBEBUILDER_ASSETS (envtest's convention), in any version;
2. the cache of all clones of this machine, `$XDG_CACHE_HOME/wattloop/binaries` (default `~/.cache/wattloop/binaries`);
3. PATH, in the version pinned here or one that works with the others: Kubernetes' own rule for its parts, and the minor
   releases in `Binary.minors`;
4. a build with Go from the module folders beside this file, into the cache.

Standard library only, so it runs before anything is installed:

    python3 tests/support/binaries/build.py                         # the programs that the tests need
    python3 tests/support/binaries/build.py kube-apiserver etcd     # only these
    python3 tests/support/binaries/build.py --controllers           # those that a few tests need beside them
    python3 tests/support/binaries/build.py --further-versions      # further versions, of the exhaustive set
    python3 tests/support/binaries/build.py --json                  # their paths as JSON on stdout
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import fcntl
import functools
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

MODULES = Path(__file__).resolve().parent
# Two concurrent builds keep two cores busy while one links; more would only need more memory.
PARALLEL_BUILDS = 2
SECONDS_BETWEEN_PROGRESS_LINES = 15.0


class BinariesUnavailableError(Exception):
    """A program was not found, and Go to build it is missing."""


class BuildFailedError(Exception):
    """Go could not build a program."""


@dataclass(frozen=True)
class Module:
    """A folder with a go.mod: programs that are built together."""

    name: str
    requirement: str
    """The module whose version in go.mod is the version of the programs."""
    link_variables: tuple[str, ...]
    """Go variables that the linker sets to the version."""

    @property
    def folder(self) -> Path:
        """The folder of go.mod and go.sum."""
        return MODULES / self.name

    @property
    def version(self) -> str:
        """The pinned version with its leading v, from go.mod."""
        return self._manifest_entry(rf"^(?:require)?\s*{re.escape(self.requirement)} (v\S+)")

    @property
    def go_needed(self) -> str:
        """The oldest Go that can build it."""
        return self._manifest_entry(r"^go (\S+)")

    def _manifest_entry(self, pattern: str) -> str:
        manifest = self.folder / "go.mod"
        found = re.search(pattern, manifest.read_text(encoding="utf-8"), re.MULTILINE)
        if found is None:
            raise BuildFailedError(f"{manifest}: nothing in it looks like {pattern}")
        return found.group(1)

    def sources(self) -> Path:
        """The folder of its sources, which has the manifests of a controller beside its code."""
        return Path(json.loads(_go(self, "mod", "download", "-json", f"{self.requirement}@{self.version}"))["Dir"])

    @property
    def linker_flags(self) -> str:
        """The value of `-ldflags`: no symbol tables, and the version."""
        values = {"VERSION": self.version, "MAJOR": "", "MINOR": ""}
        values["MAJOR"], values["MINOR"] = self.version.removeprefix("v").split(".")[:2]
        return " ".join(["-s -w", *(f"-X {variable.format(**values)}" for variable in self.link_variables)])


@dataclass(frozen=True)
class Binary:
    """A program: its name, its module and its main Go package."""

    name: str
    module: Module
    package: str
    version_arguments: tuple[str, ...]
    """Arguments that print the program's version."""
    minors: range | None = None
    """Which minor releases of the same major one on PATH may have, from the pinned one on; None: the pinned version."""

    @property
    def built_name(self) -> str:
        """The name that `go build` gives the program: the last element of the package that is not a major version."""
        elements = [element for element in self.package.split("/") if not re.fullmatch(r"v\d+", element)]
        return elements[-1]


_SAME, _NEIGHBOURS, _NODES, _ANY = range(1), range(-1, 2), range(-3, 1), range(-99, 100)
"""Of the API server and its controllers; of kubectl; of the kubelet and kube-proxy; of the same major release."""
_COMPONENT_VERSION = "k8s.io/component-base/version"
KUBERNETES = Module(
    "kubernetes",
    "k8s.io/kubernetes",
    (
        f"{_COMPONENT_VERSION}.gitVersion={{VERSION}}",
        f"{_COMPONENT_VERSION}.gitMajor={{MAJOR}}",
        f"{_COMPONENT_VERSION}.gitMinor={{MINOR}}",
    ),
)
# A separate module of the same version, so that its changes do not rebuild the API server.
NODE_AGENTS = Module("node", KUBERNETES.requirement, KUBERNETES.link_variables)
ETCD = Module("etcd", "go.etcd.io/etcd/server/v3", ())
HELM = Module("helm", "helm.sh/helm/v4", ("helm.sh/helm/v4/internal/version.version={VERSION}",))
KWOK = Module("kwok", "sigs.k8s.io/kwok", ())
GLUA = Module("glua", "github.com/yuin/gopher-lua", ())
JOBSET = Module("jobset", "sigs.k8s.io/jobset", ("sigs.k8s.io/jobset/pkg/version.GitVersion={VERSION}",))
TRAINER = Module("trainer", "github.com/kubeflow/trainer/v2", ())
TRAINER_2_1 = Module("trainer-2.1", TRAINER.requirement, ())
TRAINER_2_3 = Module("trainer-2.3", TRAINER.requirement, ())
TRAINING_OPERATOR = Module("training-operator", "github.com/kubeflow/training-operator", ())
TRAINING_OPERATOR_1_9 = Module("training-operator-1.9", TRAINING_OPERATOR.requirement, ())
KUBERAY = Module("kuberay", "github.com/ray-project/kuberay/ray-operator", ())
KUEUE = Module("kueue", "sigs.k8s.io/kueue", ("sigs.k8s.io/kueue/pkg/version.GitVersion={VERSION}",))
COREDNS = Module("coredns", "github.com/coredns/coredns", ())

BINARIES = {
    binary.name: binary
    for binary in (
        Binary("kube-apiserver", KUBERNETES, "k8s.io/kubernetes/cmd/kube-apiserver", ("--version",), _SAME),
        Binary(
            "kube-controller-manager",
            KUBERNETES,
            "k8s.io/kubernetes/cmd/kube-controller-manager",
            ("--version",),
            _SAME,
        ),
        Binary("kube-scheduler", KUBERNETES, "k8s.io/kubernetes/cmd/kube-scheduler", ("--version",), _SAME),
        Binary("kubectl", KUBERNETES, "k8s.io/kubernetes/cmd/kubectl", ("version", "--client"), _NEIGHBOURS),
        Binary("kubelet", NODE_AGENTS, "k8s.io/kubernetes/cmd/kubelet", ("--version",), _NODES),
        Binary("kube-proxy", NODE_AGENTS, "k8s.io/kubernetes/cmd/kube-proxy", ("--version",), _NODES),
        # The API server needs 3.5 or newer.
        Binary("etcd", ETCD, "go.etcd.io/etcd/server/v3", ("--version",), range(-2, 100)),
        Binary("helm", HELM, "helm.sh/helm/v4/cmd/helm", ("version", "--short"), _ANY),
        Binary("kwok", KWOK, "sigs.k8s.io/kwok/cmd/kwok", ("--version",)),
        Binary("glua", GLUA, "github.com/yuin/gopher-lua/cmd/glua", ()),
        Binary("jobset", JOBSET, "sigs.k8s.io/jobset", ()),
        Binary(
            "trainer-controller-manager", TRAINER, "github.com/kubeflow/trainer/v2/cmd/trainer-controller-manager", ()
        ),
        Binary("trainer-2.1", TRAINER_2_1, "wattloop.dev/tests/support/binaries/trainer-2.1", ()),
        Binary("trainer-2.3", TRAINER_2_3, "github.com/kubeflow/trainer/v2/cmd/trainer-controller-manager", ()),
        Binary("training-operator", TRAINING_OPERATOR, "wattloop.dev/tests/support/binaries/training-operator", ()),
        Binary(
            "training-operator-1.9",
            TRAINING_OPERATOR_1_9,
            "wattloop.dev/tests/support/binaries/training-operator-1.9",
            (),
        ),
        Binary("kuberay", KUBERAY, "wattloop.dev/tests/support/binaries/kuberay", ()),
        Binary("kueue", KUEUE, "sigs.k8s.io/kueue/cmd/kueue", ("--version",)),
        Binary("coredns", COREDNS, "github.com/coredns/coredns", ("-version",), _ANY),
    )
}
CONTROL_PLANE = ("kube-apiserver", "kube-controller-manager", "kubectl", "etcd")
"""Programs of every cluster test."""
USED_BY_TESTS = (*CONTROL_PLANE, "kube-scheduler", "helm", "jobset")
"""Programs of the tests with a control plane; kwok and glua are built on demand."""
CONTROLLERS = ("kueue", "trainer-controller-manager", "training-operator", "kuberay")
"""Programs that a few tests need beside them, and are skipped without: Kueue takes longest of all to build."""
FURTHER_VERSIONS = ("trainer-2.1", "trainer-2.3", "training-operator-1.9")
"""Controllers of the exhaustive set alone."""
NODE = (*CONTROL_PLANE, "kube-scheduler", "helm", "kubelet", "kube-proxy", "coredns")
"""Programs of a real node."""


def cache_folder() -> Path:
    """The cache of all checkouts of this user."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "wattloop" / "binaries"


def find(name: str) -> Path | None:
    """The path of a program without building it; None if it is not found."""
    binary = BINARIES[name]
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if assets and _is_program(Path(assets) / name):
        return Path(assets) / name
    for folder in _cached_folders(binary.module):
        if _is_program(folder / name):
            return folder / name
    return _on_path(binary)


def ensure(names: Iterable[str] = USED_BY_TESTS, *, at_once: bool = False) -> dict[str, Path]:
    """Find or build each program; concurrent processes of a machine share one build.

    Args:
        at_once: Whether somebody waits for them; otherwise a build gives way to the tests beside it.

    Raises:
        BinariesUnavailableError: Programs and Go are missing; the message names what to install.
        BuildFailedError: Go could not build a program; the message ends with Go's output.
    """
    wanted = list(dict.fromkeys(names))
    missing = [name for name in wanted if find(name) is None]
    if missing:
        if go_version() is None:
            go_needed = max(BINARIES[name].module.go_needed for name in missing)
            raise BinariesUnavailableError(
                f"no {', '.join(missing)} in KUBEBUILDER_ASSETS, the cache or PATH, and no Go to build with: "
                f"install Go {go_needed} or newer, or point KUBEBUILDER_ASSETS at ready programs"
            )
        for name in missing:
            if (other := shutil.which(name)) is not None:
                version, pinned = version_of(BINARIES[name], Path(other)), BINARIES[name].module.version
                sys.stderr.write(f"{other} has version {version}, which is not tried with {pinned}: {name} is built\n")
        _build(missing, at_once=at_once)
    found = {name: find(name) for name in wanted}
    return {name: path for name, path in found.items() if path is not None}


def go_version() -> str | None:
    """Version and platform of the Go on PATH, as in `go1.26.1-linux-amd64`; None without Go."""
    if shutil.which("go") is None:
        return None
    answer = subprocess.run(
        ["go", "env", "GOVERSION", "GOOS", "GOARCH"], capture_output=True, text=True, check=True, env=_go_environment()
    )
    return "-".join(answer.stdout.split())


class Progress:
    """Reports the progress of builds on stderr: one changing line on a terminal, occasional lines elsewhere."""

    def __init__(self, modules: Iterable[str]) -> None:
        self._lock = threading.Lock()
        self._start = time.monotonic()
        self._waiting = list(modules)
        self._count = len(self._waiting)
        self._state: dict[str, str] = {}
        self._last = 0.0

    def report(self, module: str, text: str, *, now: bool = False, ended: bool = False) -> None:
        """Set the text about one module; with `now`, or once it has `ended`, print it without delay."""
        with self._lock:
            if module in self._waiting:
                self._waiting.remove(module)
            self._state[module] = text
            if ended:
                del self._state[module]
            terminal = sys.stderr.isatty()
            if terminal and not now and not ended:
                line = self._line("  ".join(f"{name}: {state}" for name, state in self._state.items()))
                sys.stderr.write(f"\r\x1b[2K{line[: shutil.get_terminal_size().columns - 1]}")
            elif now or ended or time.monotonic() - self._last > SECONDS_BETWEEN_PROGRESS_LINES:
                self._last = time.monotonic()
                sys.stderr.write(f"{chr(13) + chr(27) + '[2K' if terminal else ''}{self._line(f'{module}: {text}')}\n")
            sys.stderr.flush()

    def _line(self, text: str) -> str:
        """A text after what is done, the minutes so far, and before what has not begun."""
        done = self._count - len(self._waiting) - len(self._state)
        minutes = (time.monotonic() - self._start) / 60
        then = f"; then {', '.join(self._waiting)}" if self._waiting else ""
        return f"[{done} of {self._count} built, {minutes:.1f} min] {text}{then}"


def _build(names: Sequence[str], *, at_once: bool) -> None:
    by_module: dict[str, list[Binary]] = {}
    for name in names:
        by_module.setdefault(BINARIES[name].module.name, []).append(BINARIES[name])
    progress = Progress(by_module)
    with concurrent.futures.ThreadPoolExecutor(PARALLEL_BUILDS) as pool:
        building = [pool.submit(_build_module, binaries, progress, at_once=at_once) for binaries in by_module.values()]
        for job in building:
            job.result()


def _build_module(binaries: Sequence[Binary], progress: Progress, *, at_once: bool) -> None:
    module = binaries[0].module
    folder = _keyed_folder(module, go_version() or "")
    with _locked(folder, module, progress):
        missing = [binary for binary in binaries if not _is_program(folder / binary.name)]
        if not missing:
            progress.report(module.name, "another process has built it", ended=True)
            return
        start = time.monotonic()
        with tempfile.TemporaryDirectory(dir=folder, prefix=".building-") as unfinished:
            _go_build(module, missing, Path(unfinished), progress, at_once=at_once)
            for binary in missing:
                # A program appears in the cache completely or not at all.
                os.replace(Path(unfinished) / binary.built_name, folder / binary.name)  # noqa: PTH105
        built = ", ".join(binary.name for binary in missing)
        progress.report(module.name, f"built {built} {module.version} in {time.monotonic() - start:.0f} s", ended=True)


def _go_build(module: Module, binaries: Sequence[Binary], output: Path, progress: Progress, *, at_once: bool) -> None:
    packages = [binary.package for binary in binaries]
    names = ", ".join(binary.name for binary in binaries)
    progress.report(module.name, f"downloading what {names} {module.version} is made of", now=True)
    count = len(_go(module, "list", "-deps", *packages).splitlines())
    progress.report(module.name, f"building {names} from {count} packages", now=True)
    # Beside tests, which a build of minutes must not delay.
    command = [*([] if at_once else ["nice"]), "go", "build", "-v", "-trimpath", "-buildvcs=false", "-mod=readonly"]
    command += ["-p", "2"]
    command += ["-ldflags", module.linker_flags, "-o", f"{output}/", *packages]
    start = time.monotonic()
    output: list[str] = []
    with subprocess.Popen(
        command, cwd=module.folder, env=_go_environment(), stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        for number, line in enumerate(process.stderr, 1):
            output = [*output[-30:], line]
            progress.report(module.name, f"{number}/{count} packages, {time.monotonic() - start:.0f} s")
    if process.returncode != 0:
        raise BuildFailedError(f"go build of {names} in {module.folder} failed:\n{''.join(output)}")


def _go(module: Module, *arguments: str) -> str:
    answer = subprocess.run(
        ["go", *arguments], cwd=module.folder, env=_go_environment(), capture_output=True, text=True, check=False
    )
    if answer.returncode != 0:
        raise BuildFailedError(f"go {arguments[0]} in {module.folder} failed:\n{answer.stderr[-3000:]}")
    return answer.stdout


def _go_environment() -> dict[str, str]:
    # No C compiler and no toolchain downloads: use the installed Go, or report that it is too old.
    # A user's Go flags must not affect a build, because the cache key does not contain them.
    return {**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": "", "GOWORK": "off"}


def _recipe_digest(module: Module) -> str:
    digest = hashlib.sha256(module.linker_flags.encode())
    for path in (module.folder / "go.mod", module.folder / "go.sum", *sorted(module.folder.glob("*.go"))):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _keyed_folder(module: Module, go: str) -> Path:
    return cache_folder() / f"{module.name}-{module.version}-{_recipe_digest(module)}-{go}"


def _cached_folders(module: Module) -> list[Path]:
    # A build of the same sources by any Go, the newest first.
    return sorted(cache_folder().glob(f"{module.name}-{module.version}-{_recipe_digest(module)}-*"), reverse=True)


def _on_path(binary: Binary) -> Path | None:
    path = shutil.which(binary.name)
    version = None if path is None else version_of(binary, Path(path))
    if path is None or version is None:
        return None
    pinned = binary.module.version.removeprefix("v")
    if binary.minors is None:
        return Path(path) if version == pinned else None
    (major, minor), (pinned_major, pinned_minor) = (map(int, each.split(".")[:2]) for each in (version, pinned))
    fits = major == pinned_major and minor - pinned_minor in binary.minors and not _PREVIEW.search(version)
    return Path(path) if fits else None


_VERSION = re.compile(r"(?<![\d.])(\d+\.\d+\.\d+(?:-[\w.]+)?)")
_PREVIEW = re.compile(r"-(alpha|beta|rc)")


@functools.cache
def version_of(binary: Binary, path: Path) -> str | None:
    """The version that a program says it has; None if it does not."""
    # Without arguments it would start.
    if not binary.version_arguments:
        return None
    command = [str(path), *binary.version_arguments]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    found = _VERSION.search(answer.stdout)
    return None if found is None else found[1]


def origins(found: Mapping[str, Path]) -> list[str]:
    """Where the programs come from, a line each for those that were not built."""
    cached = [name for name, path in found.items() if path.is_relative_to(cache_folder())]
    lines = [f"{', '.join(cached)}: built, in {cache_folder()}"] if cached else []
    taken = {name: path for name, path in found.items() if name not in cached}
    return lines + [f"{name}: {version_of(BINARIES[name], path)} of {path}" for name, path in taken.items()]


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


@contextlib.contextmanager
def _locked(folder: Path, module: Module, progress: Progress) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress.report(module.name, "another process is building it; waiting", now=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        for leftover in folder.glob(".building-*"):
            shutil.rmtree(leftover)
        yield


def main() -> int:
    """The command line; returns 0 if every program is available, 1 if not, 2 for an unknown name."""
    description, _, examples = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        description=description, epilog=examples, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BINARIES)}")
    parser.add_argument("--controllers", action="store_true", help=f"{', '.join(CONTROLLERS)}")
    parser.add_argument("--further-versions", action="store_true", help=f"{', '.join(FURTHER_VERSIONS)}")
    parser.add_argument("--json", action="store_true", help="print where each program is as a JSON object")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if name not in BINARIES]
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; known are {', '.join(BINARIES)}")
    try:
        controllers = CONTROLLERS if arguments.controllers else ()
        further = FURTHER_VERSIONS if arguments.further_versions else ()
        found = ensure([*arguments.names, *controllers, *further] or USED_BY_TESTS)
    except (BinariesUnavailableError, BuildFailedError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    if arguments.json:
        sys.stdout.write(json.dumps({name: str(path) for name, path in found.items()}, indent=2) + "\n")
    else:
        sys.stdout.write("".join(f"{name:24} {path}\n" for name, path in found.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
