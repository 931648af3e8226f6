"""Finds functions, classes, methods and constants of the product that no code of the product reaches.

``python tests/unreached_names.py`` starts at the console script, the commands that packages contribute, the modules
that are programs, and `ENTRY_POINTS`. From there it follows names through imports. What only tests or benchmarks use is
not reached, and neither is what only re-exports or other unreached code name. A method counts as reached if its class
is, and reached code has an attribute of its name. Fields and nested functions are not examined.
"""

import ast
import sys
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = {
    "wattloop": "client",
    "wattloop_operator": "operator",
    "wattloop_agent": "agent",
    "wattloop_planner": "planner",
    "wattloop_research": "research",
    "nvml_simulator": "simulator",
}
# Patterns of what libraries and users' code call, by who does. A pattern that matches no name is an error.
ENTRY_POINTS: dict[str, tuple[str, ...]] = {
    "the client's Python API: docs/client.md": (
        "wattloop.run.training_run:Run*",
        "wattloop.energy_monitor.energy_monitor:EnergyMonitor*",
        "wattloop.energy_monitor.measurement:Measurement*",
        "wattloop.run.power_limit_optimizer:PowerLimitOptimizer*",
        "wattloop.pipeline.pipeline_rank:Pipeline*",
        "wattloop.pipeline.instruction:Instruction*",
        "wattloop.pipeline.local_profile:ClockProfile",
        "wattloop.pipeline.plan_source:RankPlan",
        "wattloop_research.training:*",
        "wattloop.compat.zeus:*",
        "wattloop_research.training.zeus_huggingface:*",
        "wattloop_research.training.zeus_power_limit:*",
        "wattloop.compat.zeus_windows:*",
    ),
    "integrations: docs/integrations.md": (
        "wattloop.integrations.accelerate:WattloopTracker*",
        "wattloop.integrations.huggingface:*Callback*",
        "wattloop.integrations.huggingface:adapted",
        "wattloop.integrations.keras:WattloopCallback*",
        "wattloop.integrations.keras:ScaledSchedule*",
        "wattloop.integrations.lightning:WattloopCallback*",
        "wattloop.integrations.pytorch:*",
        "wattloop.integrations.pytorch_probe:*",
        "wattloop.integrations.pytorch_training_probe:TrainingProbe*",
        "wattloop.run.probing:run_probes",
        "wattloop.integrations.torch_pipelining:attach",
    ),
    "the client of the agent's socket: docs/internals/agent.md": (
        "wattloop.gpus.agent.agent_connection:AgentConnection.hold_clocks",
    ),
    "the simulation's Python API: benchmarks/bandit_choices.py": (
        "wattloop_research.simulation.overlapping_recurrences:simulate",
    ),
    "the simulator's Python API: docs/internals/simulator.md": (
        "nvml_simulator.description:device_plugin_ids",
        "nvml_simulator.models:busy_power_and_throughput",
        "nvml_simulator.simulated_machine:*",
    ),
    "Alembic": ("wattloop_operator.store.migrations.*:*",),
    "pydantic": ("wattloop_operator.api.model:ApiModel.model_post_init",),
    "rich's proxied files": ("*:*.rich_proxied_file",),
    "SQLAlchemy's types": ("*:*.process_bind_param", "*:*.process_result_value", "*:*.result_processor"),
    "logging's formatters, handlers and filters": (
        "*Formatter.format*",
        "*Formatter.process_log_record",
        "*Handler.emit",
    ),
    "urllib's handlers": ("wattloop.wire.operator_api:UnixHandler.http_open",),
    "http.server and socketserver": (
        "*:_Handler.do_GET",
        "*:BoundedHandler.*",
        "wattloop_agent.telemetry.bounded_server:BoundedServer.*",
    ),
    "asyncio's protocol": ("wattloop_operator.http.http_connection:BoundedConnection.*",),
    "kopf, which calls its handlers": ("wattloop_operator.controller.kopf_handlers:*",),
    "the election of the Kubernetes client": (
        "wattloop_operator.cluster.election:Election.renew_loop",
        "wattloop_operator.cluster.election:Election.try_acquire_or_renew",
    ),
    "ruamel.yaml's scanner": (
        "wattloop_operator.api.checks.documents:BoundedScanner.fetch_more_tokens",
        "wattloop_operator.api.checks.documents:BoundedScanner.scan_plain_spaces",
        "wattloop_operator.api.checks.documents:BoundedScanner.scan_to_next_token",
    ),
    "jsonschema's formats": ("wattloop_operator.api.checks.schema_check:_is_time",),
    "Matplotlib's artists": ("wattloop_research.frequency.plots.drawing:Labels.draw",),
}
# Who registers a method with these calls it.
REGISTERING_DECORATORS = {"field_validator", "model_validator", "model_serializer", "field_serializer"}
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class Module:
    """A module's imports and definitions.

    Attributes:
        name: Its dotted name.
        path: Its file.
        imports: What the names that it imports mean: a module, or a module and a name in it.
        definitions: Its names and, as `Class.method`, methods.
        statements: What runs at its import and defines no name.
    """

    name: str
    path: Path
    imports: dict[str, tuple[str, str]] = field(default_factory=dict)
    definitions: dict[str, list[ast.stmt]] = field(default_factory=dict)
    statements: list[ast.stmt] = field(default_factory=list)

    def read(self) -> None:
        """Read the file."""
        tree = ast.parse(self.path.read_text())
        for node in ast.walk(tree):
            self._add_import(node)
        self._add_definitions(tree.body)

    def _add_import(self, node: ast.AST) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                bound = alias.asname or alias.name.partition(".")[0]
                self.imports[bound] = (alias.name if alias.asname else bound, "")
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                self.imports[alias.asname or alias.name] = (node.module, alias.name)

    def _add_definitions(self, body: Iterable[ast.stmt]) -> None:
        for node in body:
            if isinstance(node, Function) and not node.name.startswith("__"):
                self._define(node.name, node)
            elif isinstance(node, ast.ClassDef):
                self._add_class(node)
            elif isinstance(node, ast.Assign) and all(isinstance(target, ast.Name) for target in node.targets):
                for target in node.targets:
                    assert isinstance(target, ast.Name)
                    self._define(target.id, node)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                self._define(node.target.id, node)
            elif isinstance(node, ast.If | ast.Try | ast.With):
                inner = [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt)]
                handlers = [each for handler in getattr(node, "handlers", ()) for each in handler.body]
                self._add_definitions([*inner, *handlers])
                tests = [node.test] if isinstance(node, ast.If) else []
                self.statements += [ast.Expr(test) for test in tests]
            else:
                self.statements.append(node)

    def _add_class(self, node: ast.ClassDef) -> None:
        methods = [each for each in node.body if isinstance(each, Function) and not each.name.startswith("__")]
        registered = [each for each in methods if _decorators(each) & REGISTERING_DECORATORS]
        examined = [each for each in methods if each not in registered]
        for method in examined:
            self._define(f"{node.name}.{method.name}", method)
        rest = [each for each in node.body if each not in examined]
        without = ast.ClassDef(node.name, node.bases, node.keywords, rest, node.decorator_list, lineno=node.lineno)
        self._define(node.name, without)

    def _define(self, name: str, node: ast.stmt) -> None:
        self.definitions.setdefault(name, []).append(node)


def _decorators(node: Function) -> set[str]:
    """The last part of the name of each decorator."""
    found = (each.func if isinstance(each, ast.Call) else each for each in node.decorator_list)
    return {ast.unparse(each).rpartition(".")[2] for each in found}


class Search:
    """What is reached from the entry points."""

    def __init__(self, modules: dict[str, Module]) -> None:
        self.modules = modules
        # A module and a name in it; an empty name is the module.
        self.reached: set[tuple[str, str]] = set()
        self.attributes: set[str] = set()
        self._waiting: list[tuple[str, str]] = []
        self._methods: dict[str, list[tuple[str, str]]] = {}

    def reach(self, module: str, name: str = "") -> None:
        """Reach a module or a name in it, all that it uses, and all that this uses."""
        self._reach(module, name)
        while self._waiting:
            here, what = self._waiting.pop()
            found = self.modules[here]
            for node in found.definitions[what] if what else found.statements:
                self._follow(found, node)

    def unreached(self) -> Iterator[tuple[Module, str]]:
        """All names that are not reached, without the methods of classes that are not."""
        for module in self.modules.values():
            for name in module.definitions:
                owner = name.partition(".")[0]
                if (module.name, name) in self.reached or name.startswith("__"):
                    continue
                if name == owner or (module.name, owner) in self.reached:
                    yield module, name

    def _reach(self, module: str, name: str) -> None:
        found = self.modules.get(module)
        if found is None:
            return
        if name and name not in found.definitions:
            if f"{module}.{name}" in self.modules:
                self._reach(f"{module}.{name}", "")
            elif name in found.imports and found.imports[name] != (module, name):
                self._reach(*found.imports[name])
            name = ""
        if (module, name) in self.reached:
            return
        self.reached.add((module, name))
        self._waiting.append((module, name))
        if name:
            self._reach(module, "")
            self._reach_methods_of(found, name)
        elif "." in module:
            self._reach(module.rpartition(".")[0], "")

    def _reach_methods_of(self, module: Module, owner: str) -> None:
        for name in module.definitions:
            if name.startswith(f"{owner}."):
                method = name.partition(".")[2]
                self._methods.setdefault(method, []).append((module.name, name))
                if method in self.attributes:
                    self._reach(module.name, name)

    def _follow(self, module: Module, root: ast.AST) -> None:
        for node in ast.walk(root):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                self._reach_local(module, node.id)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                self._reach_attribute(node.attr)
                self._reach_in_module(module, node)
            elif isinstance(node, ast.Import | ast.ImportFrom):
                self._reach_imported(node)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                self._reach_named(node.value)

    def _reach_local(self, module: Module, name: str) -> None:
        if name in module.definitions:
            self._reach(module.name, name)
        elif name in module.imports:
            self._reach(*module.imports[name])

    def _reach_attribute(self, name: str) -> None:
        if name not in self.attributes:
            self.attributes.add(name)
            for owner, method in self._methods.get(name, ()):
                self._reach(owner, method)

    def _reach_in_module(self, module: Module, node: ast.Attribute) -> None:
        """Reach `name` of `module.name`, where the module may have several parts."""
        first, *parts = ast.unparse(node).split(".")
        if first not in module.imports or not all(part.isidentifier() for part in parts):
            return
        source, name = module.imports[first]
        prefix = f"{source}.{name}" if name else source
        for part in parts:
            if prefix in self.modules:
                self._reach(prefix, part)
            prefix = f"{prefix}.{part}"

    def _reach_imported(self, node: ast.Import | ast.ImportFrom) -> None:
        if isinstance(node, ast.ImportFrom):
            self._reach(node.module or "", "")
        for alias in node.names:
            name = alias.name if isinstance(node, ast.Import) else f"{node.module}.{alias.name}"
            self._reach(name, "")

    def _reach_named(self, text: str) -> None:
        """Reach what a string such as `package.module:name` names, or getattr's name of a method."""
        module, colon, name = text.partition(":")
        if module in self.modules:
            self._reach(module, name if colon else "")


def product_modules() -> dict[str, Module]:
    """All modules of the product, by name."""
    modules = {}
    for package, folder in PACKAGES.items():
        for path in sorted((ROOT / folder / package).rglob("*.py")):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            modules[name] = Module(name, path)
            modules[name].read()
    return modules


def entry_points(modules: dict[str, Module]) -> Iterator[tuple[str, str]]:
    """Console scripts, contributed commands, and modules that are programs."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    commands = (target for group in project["entry-points"].values() for target in group.values())
    for target in (*project["scripts"].values(), *commands):
        module, _, name = target.partition(":")
        yield module, name
    for module in modules.values():
        if module.name.endswith("__main__") or '__name__ == "__main__"' in module.path.read_text():
            yield module.name, ""


def main() -> int:
    """Print what is not reached; the exit status is 1 if anything is, or a pattern matches nothing."""
    modules = product_modules()
    search = Search(modules)
    for module, name in entry_points(modules):
        search.reach(module, name)
    problems = []
    for reason, patterns in ENTRY_POINTS.items():
        for pattern in patterns:
            matching = [
                (module.name, name)
                for module in modules.values()
                for name in module.definitions
                if fnmatchcase(f"{module.name}:{name}", pattern)
            ]
            for module_name, name in matching:
                search.reach(module_name, name)
            if not matching:
                problems.append(f"tests/unreached_names.py: {pattern} ({reason}) matches no name; delete it")
    problems += [
        f"{module.path.relative_to(ROOT)}:{module.definitions[name][0].lineno}: no code of the product reaches {name}"
        for module, name in search.unreached()
    ]
    for problem in problems:
        sys.stdout.write(f"{problem}\n")
    if problems:
        sys.stdout.write("Delete what is dead; name in ENTRY_POINTS what users or libraries call.\n")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
