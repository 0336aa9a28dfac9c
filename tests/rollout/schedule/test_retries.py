"""The retry queue: which attempts are repeated, when, and which episode must be played isolated. No pool, no clock."""

import pytest

from lemur_ray.agents.messages import PolicyUnreachable
from lemur_ray.agents.trajectory import EpisodeKey, Outcome
from lemur_ray.rollout.attempt import Attempt, EpisodeSpec
from lemur_ray.rollout.schedule.retries import RetryPolicy, RetryQueue, SilenceWatch
from tests.rollout.toy import toy_task

POLICY = RetryPolicy(env=1, infra=1, harness=0, infra_delay_s=2.0)
SPEC = EpisodeSpec(EpisodeKey("toy", "t0", "p", "r"), toy_task())
LOST = Attempt(Outcome.INFRA_LOST, None, detail="no power")


def test_a_scored_attempt_is_the_last_one():
    queue = RetryQueue(POLICY)
    history = queue.finish(SPEC, Attempt(Outcome.FAILED, 0.0), now=0.0)
    assert history is not None
    assert (history.number, history.reasons, len(queue)) == (1, (), 0)


def test_a_lost_attempt_waits_for_its_delay_and_its_history_says_why():
    queue = RetryQueue(POLICY)
    assert queue.finish(SPEC, LOST, now=10.0) is None
    assert (len(queue), queue.num_delayed) == (1, 1)
    assert list(queue.pop_due(11.9)) == []
    assert list(queue.pop_due(12.0)) == [SPEC]
    history = queue.finish(SPEC, LOST, now=13.0)
    assert history is not None, "one retry is allowed"
    assert (history.number, history.reasons) == (2, ("attempt 1: infra_lost: no power",))


def test_an_episode_that_is_excused_too_often_is_played_isolated_when_no_other_is():
    queue, excused = RetryQueue(POLICY), Attempt(Outcome.INFRA_LOST, None, excused=True)
    other = EpisodeSpec(EpisodeKey("toy", "t1", "p", "r"), toy_task("t1"))
    assert queue.finish(SPEC, excused, now=0.0) is None
    assert [spec.isolated for spec in queue.pop_due(60.0)] == [False]
    assert queue.finish(SPEC, excused, now=60.0) is None
    assert list(queue.pop_due(120.0)) == []
    assert not queue.may_isolate(in_flight=1), "another episode is in flight"
    assert queue.finish(other, LOST, now=120.0) is None
    assert not queue.may_isolate(in_flight=0), "another episode is delayed"
    assert list(queue.pop_due(180.0)) == [other]
    assert queue.may_isolate(in_flight=0)
    isolated = queue.pop_isolated()
    assert isolated.isolated
    assert len(queue) == 0
    history = queue.finish(isolated, LOST, now=181.0)
    assert history is None, "the first attempt that counts may be repeated"


def test_silence_is_broken_only_if_it_lasts_over_more_attempts_than_are_in_flight():
    silent, watch = Attempt(Outcome.POLICY_UNREACHABLE, None, detail="nobody at home"), SilenceWatch(100.0)
    for now in (0.0, 50.0, 100.0):
        watch.observe(silent, now)
    watch.check(100.0, in_flight=3)
    with pytest.raises(PolicyUnreachable, match="3 attempts in a row, the last: nobody at home"):
        watch.check(100.0, in_flight=2)
    watch.observe(Attempt(Outcome.ENV_ERROR, None), 101.0)
    watch.check(500.0, in_flight=0)
