"""Who is named when ranks end differently."""

from __future__ import annotations

from search.execution.blame import in_step, verdict
from search.execution.serve import Ended

COMPLETE = Ended("complete", metrics={"test_accuracy": 0.9})
RAISED = Ended("failed", "ValueError: no such thing")
INFEASIBLE = Ended("infeasible", "batch_size 7: too odd")
LOST = Ended("failed", "lost another rank: Connection closed by peer", peer_lost=True)


def test_when_all_are_complete_rank_0_speaks() -> None:
    assert verdict({1: Ended("complete"), 0: COMPLETE}, 2, 120) is COMPLETE


def test_the_rank_that_raised_first_is_named() -> None:
    ended = verdict({2: RAISED, 0: Ended("failed", "KeyError: 3")}, 3, 120)
    assert (ended.state, ended.reason) == ("failed", "rank 2: ValueError: no such thing")
    assert verdict({0: INFEASIBLE, 1: INFEASIBLE}, 2, 120).state == "infeasible"


def test_one_process_needs_no_number() -> None:
    assert verdict({0: RAISED}, 1, 120).reason == RAISED.reason


def test_those_that_only_lost_another_are_not_to_blame_though_they_tell_first() -> None:
    assert verdict({0: LOST, 1: RAISED, 2: LOST}, 3, 120).reason == "rank 1: ValueError: no such thing"


def test_the_silent_are_named_with_what_the_others_saw() -> None:
    ended = verdict({2: LOST, 0: LOST}, 4, 120)
    assert ended.state == "failed"
    saw = "lost another rank: Connection closed by peer"
    assert ended.reason == (f"ranks 1 and 3 did not answer the other ranks for 120 s; rank 0: {saw}; rank 2: {saw}")
    assert verdict({0: COMPLETE}, 2, 8).reason == "rank 1 did not answer the other ranks for 8 s"


def test_when_all_lost_each_other_nobody_is_named() -> None:
    reason = verdict({0: LOST, 1: LOST}, 2, 120).reason or ""
    assert reason.startswith("the ranks waited for each other in vain, up to 120 s; rank 0: lost")


def test_ranks_work_on_together_only_where_no_operation_can_be_half_done() -> None:
    assert in_step({0: COMPLETE, 1: Ended("complete")})
    assert in_step({0: RAISED})
    assert in_step({0: INFEASIBLE, 1: INFEASIBLE})
    assert not in_step({0: INFEASIBLE, 1: Ended("infeasible", "out of memory")})
    assert not in_step({0: RAISED, 1: RAISED})
    assert not in_step({0: COMPLETE, 1: LOST})
