"""The chart's policy refuses the parameters that `wattloop validate` refuses, with its words."""

from typing import Any

from kubernetes.dynamic import DynamicClient

from support.chart.admission import await_refusal, object_refusal
from support.chart.training_jobs import job
from support.control_plane.chart import Release
from wattloop_operator.api.batch_size import wrong_parameters
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob


def parameter(default: Any, candidates: list[Any], name: str = "dropout") -> dict[str, Any]:
    return {"name": name, "default": default, "candidates": candidates}


def test_parameters_are_refused_as_by_validate(release: Release, cluster: DynamicClient, namespace: str) -> None:
    def refusal(body: dict[str, Any]) -> str:
        return object_refusal(cluster, body, namespace=namespace)

    def with_sizes(policy: str, *parameters: dict[str, Any], default: int = 32) -> dict[str, Any]:
        return job(batchSize={"default": default, "policy": policy}, parameters=list(parameters))

    def both_refuse(body: dict[str, Any]) -> bool:
        spec = RecurringTrainingJob.from_wire(body).spec
        wrong = wrong_parameters(spec.parameters, spec.batch_size)
        message = refusal(body)
        assert wrong is None or wrong.expected in " ".join(message.split())
        assert (wrong is None) == (message == "")
        return wrong is not None

    many = [parameter(1, list(range(1, 17)), name) for name in ("a", "b")]
    await_refusal(lambda: refusal(with_sizes("Zeus", *many)), "one candidate")
    assert [
        both_refuse(with_sizes("ThompsonSampling", *parameters))
        for parameters in (
            [parameter(0.3, [0.1, 0.2])],
            [parameter("0.1", [0.1, "0.10"])],
            [parameter(64, ["64", 64.0])],
            many,
            [parameter("0.1", [0.1, 0.2])],
            [parameter(2.0, [2, 0.00001])],
            [parameter("adam", ["adam", "1.0"])],
            many[:1],
        )
    ] == [True, True, True, True, False, False, False, False]
    # Without candidates a small default has fewer of them: 3, 4 and 5 batch sizes, each with 64 values.
    values = [parameter(1, list(range(1, 17)), "a"), parameter(1, [1, 2, 3, 4], "b")]
    assert [both_refuse(with_sizes("ThompsonSampling", *values, default=size)) for size in (1, 3, 4)] == [
        False,
        False,
        True,
    ]
    assert both_refuse(with_sizes("Zeus", *many[:1]))
    assert not both_refuse(with_sizes("Zeus", parameter(0.1, [0.1])))
