"""Faults that are planted one at a time: small changes of the product's sources, drawn over all packages.

The kinds are those of mutation testing (Jia and Harman, "An Analysis and Survey of the Development of Mutation
Testing", IEEE TSE 2011, table 4): another comparison, a negated condition, another arithmetic operator, another
boolean operator, another constant, no result, no call.
"""

import ast
import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}
ARITHMETIC: dict[type[ast.operator], str] = {ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*"}


@dataclass(frozen=True)
class Fault:
    """A change of one expression or statement.

    Attributes:
        path: The file, relative to the root of the tree.
        line: Its first line, from 1.
        begin: Where it begins, in bytes from the begin of the file.
        before: The source that is replaced.
    """

    path: str
    line: int
    last_line: int
    begin: int
    end: int
    before: str
    after: str

    def planted_in(self, source: bytes) -> bytes:
        """The file's source with the fault."""
        return source[: self.begin] + self.after.encode() + source[self.end :]

    def __str__(self) -> str:
        before, after = (" ".join(text.split()) for text in (self.before, self.after))
        return f"{self.path}:{self.line}: {before} -> {after}"


def faults_of(path: str, source: bytes) -> list[Fault]:
    """All faults that can be planted in a file.

    >>> [str(fault) for fault in faults_of("a.py", b"def f(x):\\n    return x < 3\\n")]
    ['a.py:2: return x < 3 -> return None', 'a.py:2: x < 3 -> x <= 3', 'a.py:2: 3 -> 4']
    """
    text = _Text(source)
    found = []
    for node, after in _replacements(ast.parse(source), text):
        begin, end = text.place(node)
        before = source[begin:end].decode()
        if before != after:
            assert node.end_lineno is not None
            found.append(Fault(path, node.lineno, node.end_lineno, begin, end, before, after))
    return sorted(found, key=lambda fault: (fault.begin, fault.end))


class _Text:
    """The source of a file, by its nodes. `ast.get_source_segment` splits the whole file into lines for each."""

    def __init__(self, source: bytes) -> None:
        self._source = source
        self._starts = list(itertools.accumulate(map(len, source.splitlines(keepends=True)), initial=0))

    def place(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        """Where a node begins and ends, in bytes from the begin of the file."""
        return (
            self._starts[node.lineno - 1] + node.col_offset,
            self._starts[node.end_lineno - 1] + node.end_col_offset,
        )

    def of(self, node: ast.expr) -> str:
        """An expression's source, as an operand."""
        begin, end = self.place(node)
        segment = self._source[begin:end].decode()
        return f"({segment})" if isinstance(node, ast.NamedExpr) else segment


def draw(root: Path, packages: list[str], count: int, seed: int) -> list[Fault]:
    """So many faults of the packages: each line of code is as likely as any other."""
    generator = random.Random(seed)
    by_line: dict[tuple[str, int], list[Fault]] = {}
    for package in packages:
        for path in sorted((root / package).rglob("*.py")):
            name = str(path.relative_to(root))
            for fault in faults_of(name, path.read_bytes()):
                by_line.setdefault((name, fault.line), []).append(fault)
    return [generator.choice(by_line[line]) for line in sorted(generator.sample(sorted(by_line), count))]


def _replacements(tree: ast.Module, text: _Text) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    """Each place that can be changed, with the source that replaces it."""
    annotations = {id(part) for node in ast.walk(tree) for each in _annotations(node) for part in ast.walk(each)}
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for node in _own_nodes(function):
            if id(node) in annotations or not isinstance(node, ast.expr | ast.stmt):
                continue
            for after in _changes(node, text.of):
                yield node, after
            if isinstance(node, ast.If | ast.IfExp | ast.While):
                yield node.test, f"not ({text.of(node.test)})"


def _own_nodes(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[ast.AST]:
    """What a function's body has, without the functions inside it, which are visited by themselves."""
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.JoinedStr):
            waiting += ast.iter_child_nodes(node)


def _annotations(node: ast.AST) -> list[ast.AST]:
    fields = (getattr(node, name, None) for name in ("annotation", "returns"))
    return [each for each in fields if each is not None]


def _changes(node: ast.AST, text: Callable[[ast.expr], str]) -> Iterator[str]:
    """The sources that may replace a node."""
    match node:
        case ast.Compare(left=left, ops=[comparison], comparators=[right]):
            yield f"{text(left)} {COMPARISONS[type(comparison)]} {text(right)}"
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in ARITHMETIC:
            yield f"({text(left)}) {ARITHMETIC[type(operator)]} ({text(right)})"
        case ast.BoolOp(op=operator, values=values):
            word = " or " if isinstance(operator, ast.And) else " and "
            yield word.join(f"({text(value)})" for value in values)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield text(operand)
        case ast.Constant(value=bool() as value):
            yield str(not value)
        case ast.Constant(value=int() | float() as value):
            yield str(value + 1)
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            yield "return None"
        case ast.Expr(value=ast.Call()):
            yield "pass"
        case _:
            pass
