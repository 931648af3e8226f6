"""Pages hold everything once, none is too large, and a pod is on one of them."""

from __future__ import annotations

from collections import Counter
from itertools import chain

from hypothesis import given
from hypothesis import strategies as st

from wattloop.node_energy import PodGpuUsage
from wattloop_agent.monitor.push.pusher import pages

PODS = st.lists(st.integers(1, 6), max_size=12)


def usages(pods: list[int]) -> list[PodGpuUsage]:
    return [
        PodGpuUsage(f"uid-{pod}", "team", f"pod-{pod}", "train", f"GPU-{gpu}", False, 1, 0, 0.0, 1.0, True)
        for pod, gpus in enumerate(pods)
        for gpu in range(gpus)
    ]


@given(PODS, st.integers(6, 10))
def test_every_usage_is_on_one_page_with_its_pods_others(pods: list[int], limit: int) -> None:
    everything = usages(pods)
    filled = pages(everything, limit)
    assert sorted(chain.from_iterable(filled), key=lambda each: each.key) == sorted(
        everything, key=lambda each: each.key
    )
    assert all(len(page) <= limit for page in filled)
    assert all(page for page in filled[1:])
    pages_of_pod = Counter(pod for page in filled for pod in {each.pod_uid for each in page})
    assert set(pages_of_pod.values()) <= {1}


@given(st.integers(1, 30), st.integers(1, 5))
def test_a_pod_that_no_page_can_hold_is_cut(gpus: int, limit: int) -> None:
    filled = pages(usages([gpus]), limit)
    assert sum(len(page) for page in filled) == gpus
    assert all(len(page) <= limit for page in filled)
