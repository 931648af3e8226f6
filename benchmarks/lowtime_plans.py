"""Plans a pipeline with Lowtime, as in its Perseus example, and prints the plans as JSON.

benchmarks/frequency.py runs this script with an interpreter that has Lowtime (PyPI: lowtime), without Wattloop.
"""

from __future__ import annotations

import csv
import json
import sys
import time
import warnings
from pathlib import Path

import networkx as nx
from lowtime.cost_model import ExponentialModel
from lowtime.graph_utils import add_sink_node, add_source_node
from lowtime.operation import CandidateExecutionOptions, ExecutionOption, OperationSpec
from lowtime.perseus.instruction import Backward, Forward
from lowtime.perseus.schedule import Synchronous1F1B
from lowtime.solver import PhillipsDessouky

UNIT_SECONDS = 0.001


def main(profile: str, stages: int, microbatches: int, blocking_power_watts: float) -> None:
    """Print the seconds and, for each plan, the frequencies of each stage in execution order."""
    with Path(profile).open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    started = time.perf_counter()
    specs = {
        (stage, instruction): _specification(rows, stage, instruction, blocking_power_watts)
        for stage in range(stages)
        for instruction in (Forward, Backward)
    }
    dag, instructions = _graph(specs, stages, microbatches)
    plans = [[[op.assigned_knob for op in row] for row in instructions] for _ in PhillipsDessouky(dag).run()]
    json.dump({"seconds": time.perf_counter() - started, "plans": plans}, sys.stdout)


def _specification(rows: list[dict[str, str]], stage: int, instruction: type, power: float) -> OperationSpec:
    matching = [r for r in rows if int(r["stage"]) == stage and r["instruction"] == instruction.__name__.lower()]
    options = CandidateExecutionOptions(
        options=[
            ExecutionOption(float(r["time"]), UNIT_SECONDS, float(r["energy"]), int(float(r["frequency"])))
            for r in matching
        ]
    )
    for option in options.options:
        option.cost -= power * option.quant_time * option.unit_time
    with warnings.catch_warnings():
        # The fit tries starting points until one converges; the others emit warnings.
        warnings.simplefilter("ignore")
        return OperationSpec(options=options, cost_model=ExponentialModel(options))


def _graph(
    specs: dict[tuple[int, type], OperationSpec], stages: int, microbatches: int
) -> tuple[nx.DiGraph, list[list]]:
    dag = nx.DiGraph(source_node=0, sink_node=1)
    node_of, instructions = {}, []
    for stage in range(stages):
        own = {instruction: specs[stage, instruction] for instruction in (Forward, Backward)}
        row = list(Synchronous1F1B(stages, microbatches, stage, own))
        nodes = [len(dag) + 2 + place for place in range(len(row))]
        for node, operation in zip(nodes, row, strict=True):
            dag.add_node(node, op=operation)
            node_of[type(operation), stage, operation.micro_batch_id] = node
        nx.add_path(dag, nodes)
        instructions.append(row)
    for stage in range(stages - 1):
        for number in range(microbatches):
            dag.add_edge(node_of[Forward, stage, number], node_of[Forward, stage + 1, number])
            dag.add_edge(node_of[Backward, stage + 1, number], node_of[Backward, stage, number])
    add_source_node(dag, 0)
    add_sink_node(dag, 1)
    return dag, instructions


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
