"""Rate limits: no caller exceeds its own limit, or uses up another's."""

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.reporting.json_web_token import json_web_token
from support.reporting.node_api import USAGE, report, running_node_api
from support.reporting.reporting_api import BODY, running_api
from support.test_sets.parameters import exhaustive_after
from wattloop.pipeline.plan_messages import MAX_PIPELINE_MESSAGE_BYTES
from wattloop_operator.reporting.interfaces import BearerToken, TooManyRequestsError
from wattloop_operator.reporting.report_limits import (
    BYTES_PER_MESSAGE,
    CLUSTER_RATES,
    MAX_FURTHER_MESSAGES,
    MAX_TOKENS,
    FairShares,
    Rate,
    ReportLimits,
    TokenBuckets,
)


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


def accepted(limits: ReportLimits, name: str, tries: int, namespace: str = "team") -> int:
    """The number of simultaneous reports that are within the limits."""
    count = 0
    for _ in range(tries):
        try:
            limits.count_report(namespace, name)
        except TooManyRequestsError:
            continue
        count += 1
    return count


@given(st.floats(0.1, 100), st.integers(1, 50), st.lists(st.tuples(st.floats(0, 5), st.integers(0, 2)), max_size=200))
def test_no_key_takes_more_than_its_burst_and_its_rate_over_time(
    rate: float, burst: int, requests: list[tuple[float, int]]
) -> None:
    clock = Clock()
    buckets: TokenBuckets[int] = TokenBuckets(Rate(rate, burst), clock, max_keys=10)
    taken = dict.fromkeys(range(3), 0)
    for pause, key in requests:
        clock.now += pause
        wait = buckets.wait_seconds(key)
        assert buckets.take(key) is (wait == 0.0)
        taken[key] += wait == 0.0
        assert taken[key] <= burst + rate * clock.now + 1e-6
        # The wait is never longer than one request takes.
        assert wait <= 1 / rate + 1e-9


@given(st.lists(st.integers(0, 100), max_size=300), st.integers(1, 20))
def test_the_number_of_buckets_is_bounded(keys: list[int], max_keys: int) -> None:
    buckets: TokenBuckets[int] = TokenBuckets(Rate(1.0, 2.0), Clock(), max_keys=max_keys)
    for key in keys:
        buckets.take(key)
        assert len(buckets) <= max_keys


def test_a_token_over_its_limit_does_not_affect_other_tokens() -> None:
    limits = ReportLimits(Clock())
    for _ in range(60):
        limits.count_token(BearerToken("flood"))
    with pytest.raises(TooManyRequestsError, match=r"too many requests of this token; send the next one in 1 s"):
        limits.count_token(BearerToken("flood"))
    limits.count_token(BearerToken("other"))


def test_tokens_are_stored_as_bounded_digests() -> None:
    limits = ReportLimits(Clock())
    for number in range(MAX_TOKENS + 100):
        limits.count_token(BearerToken(f"garbage-{number}"))
    assert len(limits._tokens) == MAX_TOKENS


@pytest.mark.parametrize("recurrences", exhaustive_after([4, 40]))
@pytest.mark.parametrize("pause_seconds", exhaustive_after([1.0, 0.01, 36.0]))
def test_a_namespace_over_its_share_leaves_the_others_theirs(recurrences: int, pause_seconds: float) -> None:
    clock = Clock()
    limits = ReportLimits(clock)
    floods = [f"flood-{number}" for number in range(recurrences)]
    assert sum(accepted(limits, name, 3_000, "hostile") for name in floods) <= CLUSTER_RATES.total.burst
    for round_number in range(20):
        clock.now += pause_seconds
        before = [accepted(limits, name, 200, "hostile") for name in floods]
        assert sum(before) <= CLUSTER_RATES.total.burst
        # The first round finds what the flood has left; then the victim has an equal share.
        wanted = max(1, round(min(pause_seconds, 10.0)))
        assert accepted(limits, "victim", wanted, "team") == wanted or round_number == 0


@given(st.lists(st.tuples(st.floats(0, 3), st.integers(0, 4), st.integers(1, 40)), max_size=80))
def test_users_within_their_shares_never_use_up_the_limit(requests: list[tuple[float, int, int]]) -> None:
    clock = Clock()
    rate = Rate(5.0, 60.0)
    shares: FairShares[int] = FairShares(rate, clock, max_keys=5)
    for pause, key, count in requests:
        clock.now += pause
        for _ in range(count):
            if shares.has_share(key):
                shares.use(key)
        assert shares._used.get(key, 0.0) <= rate.burst
        assert len(shares) <= 5


def test_a_thousand_ranks_that_report_at_once_are_within_the_limits() -> None:
    assert accepted(ReportLimits(Clock()), "large", 1_000) == 1_000


def test_a_request_beyond_a_limit_takes_nothing() -> None:
    limits = ReportLimits(Clock(), replace(CLUSTER_RATES, recurrence=Rate(1.0, 2.0)))
    assert accepted(limits, "flood", 5_000) == 2
    assert limits._reports._total.level(None) == CLUSTER_RATES.total.burst - 2


def test_long_pipeline_messages_count_as_many() -> None:
    clock = Clock()
    limits, token = ReportLimits(clock), BearerToken("one")
    largest = MAX_PIPELINE_MESSAGE_BYTES
    for _ in range(1_000):
        limits.count_pipeline_bytes(token, "team", "digits", BYTES_PER_MESSAGE - 1)
    limits.count_pipeline_bytes(token, "team", "digits", largest)
    with pytest.raises(TooManyRequestsError, match="this token"):
        limits.count_pipeline_bytes(token, "team", "digits", largest)
    for number in range(int(CLUSTER_RATES.pipeline.burst) // MAX_FURTHER_MESSAGES - 1):
        limits.count_pipeline_bytes(BearerToken(f"pod {number}"), "team", "digits", largest)
    with pytest.raises(TooManyRequestsError, match="recurrence team/digits"):
        limits.count_pipeline_bytes(BearerToken("one more pod"), "team", "digits", largest)
    # The pods of another job send theirs.
    limits.count_pipeline_bytes(BearerToken("other"), "team", "bert", largest)
    clock.now += MAX_FURTHER_MESSAGES / CLUSTER_RATES.token.per_second
    limits.count_pipeline_bytes(token, "team", "digits", largest)


def test_unknown_tokens_from_one_address_leave_other_addresses_their_reviews() -> None:
    limits = ReportLimits(Clock())
    reviewed = 0
    for _ in range(5_000):
        try:
            limits.count_review("10.0.0.66")
        except TooManyRequestsError:
            continue
        reviewed += 1
    assert reviewed == CLUSTER_RATES.address.burst
    limits.count_review("10.0.0.1")


def test_all_addresses_together_have_a_review_limit() -> None:
    limits = ReportLimits(Clock(), replace(CLUSTER_RATES, reviews=Rate(1.0, 3.0)))
    for number in range(3):
        limits.count_review(f"10.0.0.{number}")
    with pytest.raises(TooManyRequestsError, match="unknown tokens from all addresses"):
        limits.count_review("10.0.0.9")


def test_a_token_over_its_limit_gets_429_with_retry_after_and_others_do_not(tmp_path: Path) -> None:
    with running_api(tmp_path, limits=ReportLimits(Clock())) as api:
        name, token = api.recurrence()
        other, other_token = api.recurrence()
        codes = [api.post(name, token, BODY | {"sequence": number}).code for number in range(1, 101)]
        assert codes == [200] * 60 + [429] * 40
        rejected = api.post(name, token, b"this is not read")
        assert (rejected.code, rejected.headers["retry-after"]) == (429, "1")
        assert rejected.body == {"detail": "too many requests of this token; send the next one in 1 s"}
        assert api.post(other, other_token).code == 200


def test_malformed_tokens_cause_no_token_reviews(tmp_path: Path) -> None:
    clock = Clock()
    with running_node_api(tmp_path, limits=ReportLimits(clock)) as api:
        assert api.post(report(USAGE))[0] == 200
        codes = [api.post(b"{}", token=f"garbage-{number}")[0] for number in range(100)]
        assert codes == [401] * 63 + [429] * 37
        assert api.server.asked["tokenreviews"] == 64
        # The agent was authorized before the flood, and its token is known for an hour.
        assert api.post(report(USAGE))[0] == 200


def test_an_agent_has_its_own_limit(tmp_path: Path) -> None:
    with running_node_api(tmp_path, limits=ReportLimits(Clock())) as api:
        codes = [api.post(report(USAGE))[0] for _ in range(70)]
    assert codes == [200] * 60 + [429] * 10


def test_a_token_without_the_audience_is_rejected_without_a_review(tmp_path: Path) -> None:
    with running_node_api(tmp_path) as api:
        for token in ("garbage", "a.b.c", json_web_token("x", "https://kubernetes.default.svc")):
            assert api.post(b"{}", bearer=token)[0] == 401
        assert api.server.asked["tokenreviews"] == 0
