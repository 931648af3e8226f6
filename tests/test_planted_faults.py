"""Faults that are planted to measure the tests: each is a change of a source that still compiles."""

import ast
from pathlib import Path

from support.planted_faults.mutations import draw, faults_of

ROOT = Path(__file__).parents[1]
EVERY_KIND = b"""
def f(a: int, b):
    if a and b:
        g(a)
    while not a < 1.5:
        a = a + b
    return True if a is None else [a in b]
"""
CHANGES = {
    "if": "a and b -> not (a and b)",
    "boolean operator": "a and b -> (a) or (b)",
    "call": "g(a) -> pass",
    "loop": "not a < 1.5 -> not (not a < 1.5)",
    "negation": "not a < 1.5 -> a < 1.5",
    "comparison": "a < 1.5 -> a <= 1.5",
    "number": "1.5 -> 2.5",
    "arithmetic": "a + b -> (a) - (b)",
    "result": "return True if a is None else [a in b] -> return None",
    "truth": "True -> False",
    "conditional expression": "a is None -> not (a is None)",
    "identity": "a is None -> a is not None",
    "membership": "a in b -> a not in b",
}


def test_each_kind_of_expression_has_its_change() -> None:
    assert {str(fault).partition(": ")[2] for fault in faults_of("a.py", EVERY_KIND)} == set(CHANGES.values())


def test_a_drawn_fault_changes_one_place_of_a_source_that_still_compiles() -> None:
    drawn = draw(ROOT, ["agent/wattloop_agent/monitor"], 40, seed=1)
    assert drawn == draw(ROOT, ["agent/wattloop_agent/monitor"], 40, seed=1)
    for fault in drawn:
        source = (ROOT / fault.path).read_bytes()
        planted = fault.planted_in(source)
        assert ast.dump(ast.parse(planted)) != ast.dump(ast.parse(source)), fault
        assert fault.after in planted.decode()
        assert len(planted) - len(source) == len(fault.after.encode()) - len(fault.before.encode())
