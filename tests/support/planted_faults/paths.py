"""Which tests walk the same path: their parameters are one test too many, unless they differ in what they assert.

    PYTHONPATH=tests .venv/bin/python -m support.planted_faults.paths --contexts build/contexts/.coverage

Prints a row a test function: how many tests its parameters make, how many different paths they walk, and how many lines
of the product it alone reaches. What tests reach was recorded by `support.planted_faults.contexts`.
"""

import argparse
import csv
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from coverage import CoverageData

COLUMNS = ("test", "parameters", "paths", "lines_alone")


def lines_of_tests(contexts: CoverageData) -> dict[str, set[tuple[str, int]]]:
    """The lines of the product that each test reaches: file and number."""
    found: dict[str, set[tuple[str, int]]] = defaultdict(set)
    for file in contexts.measured_files():
        for line, tests in contexts.contexts_by_lineno(file).items():
            for test in tests:
                if "::" in test:
                    found[test].add((file, line))
    return found


def rows(lines: Mapping[str, set[tuple[str, int]]]) -> Iterator[tuple[str, int, int, int]]:
    """The rows of the table, those with the most parameters of one path first.

    >>> list(rows({"t.py::test_a[1]": {("f", 1)}, "t.py::test_a[2]": {("f", 1)}, "t.py::test_b": {("f", 1), ("f", 2)}}))
    [('t.py::test_a', 2, 1, 0), ('t.py::test_b', 1, 1, 1)]
    """
    functions: dict[str, list[set[tuple[str, int]]]] = defaultdict(list)
    for test, reached in lines.items():
        functions[test.partition("[")[0]].append(reached)
    together = {function: set[tuple[str, int]]().union(*paths) for function, paths in functions.items()}
    count = Counter(line for reached in together.values() for line in reached)
    table = [
        (
            function,
            len(paths),
            len({frozenset(path) for path in paths}),
            sum(count[line] == 1 for line in together[function]),
        )
        for function, paths in functions.items()
    ]
    yield from sorted(table, key=lambda row: (row[2] - row[1], row[0]))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table of what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--contexts", type=Path, required=True, metavar="FILE", help="what coverage combine wrote")
    options = parser.parse_args(arguments)
    contexts = CoverageData(str(options.contexts))
    contexts.read()
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow(COLUMNS)
    table.writerows(rows(lines_of_tests(contexts)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
