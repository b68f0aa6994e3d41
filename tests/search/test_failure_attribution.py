"""Attribution of a failure when ranks end differently."""

from __future__ import annotations

from search.execution.failure_attribution import are_in_step, attribute_failure
from search.execution.protocol import Ended

COMPLETE = Ended("complete", metrics={"test_accuracy": 0.9})
RAISED = Ended("failed", "ValueError: no such thing")
INFEASIBLE = Ended("infeasible", "batch_size 7: too odd")
LOST = Ended("failed", "lost another rank: Connection closed by peer", peer_lost=True)


def test_when_all_are_complete_rank_0_speaks() -> None:
    assert attribute_failure({1: Ended("complete"), 0: COMPLETE}, 2, 120) is COMPLETE


def test_the_rank_that_raised_first_is_named() -> None:
    ended = attribute_failure({2: RAISED, 0: Ended("failed", "KeyError: 3")}, 3, 120)
    assert (ended.state, ended.reason) == ("failed", "rank 2: ValueError: no such thing")
    assert attribute_failure({0: INFEASIBLE, 1: INFEASIBLE}, 2, 120).state == "infeasible"


def test_one_process_needs_no_number() -> None:
    assert attribute_failure({0: RAISED}, 1, 120).reason == RAISED.reason


def test_a_rank_that_only_lost_another_is_not_named_though_it_ended_first() -> None:
    assert attribute_failure({0: LOST, 1: RAISED, 2: LOST}, 3, 120).reason == "rank 1: ValueError: no such thing"


def test_the_silent_are_named_with_what_the_others_saw() -> None:
    ended = attribute_failure({2: LOST, 0: LOST}, 4, 120)
    assert ended.state == "failed"
    saw = "lost another rank: Connection closed by peer"
    assert ended.reason == (f"ranks 1 and 3 did not answer the other ranks for 120 s; rank 0: {saw}; rank 2: {saw}")
    assert attribute_failure({0: COMPLETE}, 2, 8).reason == "rank 1 did not answer the other ranks for 8 s"


def test_when_all_lost_each_other_nobody_is_named() -> None:
    reason = attribute_failure({0: LOST, 1: LOST}, 2, 120).reason or ""
    assert reason.startswith("the ranks waited for each other without an answer, up to 120 s; rank 0: lost")


def test_ranks_work_on_together_only_where_no_operation_can_be_half_done() -> None:
    assert are_in_step({0: COMPLETE, 1: Ended("complete")})
    assert are_in_step({0: RAISED})
    assert are_in_step({0: INFEASIBLE, 1: INFEASIBLE})
    assert not are_in_step({0: INFEASIBLE, 1: Ended("infeasible", "out of memory")})
    assert not are_in_step({0: RAISED, 1: RAISED})
    assert not are_in_step({0: COMPLETE, 1: LOST})
    assert not are_in_step({0: Ended("failed", "CUDA error: an illegal memory access", process_lost=True)})
