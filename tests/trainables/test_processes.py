"""Processes of a job: which one is named when one fails."""

import pytest

from trainables.contract import group_timeout_seconds
from trainables.processes import LOST_ANOTHER, attribute_failure


@pytest.mark.parametrize(
    ("ended", "code", "reason"),
    [
        ({1: 0, 0: 0}, 0, None),
        ({0: LOST_ANOTHER, 1: -9}, 1, "rank 1 was ended by SIGKILL"),
        ({0: LOST_ANOTHER, 1: 2}, 2, "rank 1 failed"),
        ({1: 1, 0: LOST_ANOTHER}, 1, "rank 1 failed"),
        ({0: LOST_ANOTHER}, 1, "rank 1 did not answer the others for 120 s"),
        ({0: -6}, 1, "rank 1 did not answer the others for 120 s (rank 0 was ended by SIGABRT)"),  # by NCCL's watchdog
        ({0: -6, 1: 2}, 2, "rank 1 failed"),
        ({0: LOST_ANOTHER, 1: -6}, 1, "rank 1 was ended by SIGABRT"),
        ({0: LOST_ANOTHER, 1: LOST_ANOTHER}, 1, "the ranks waited for each other without an answer, up to 120 s"),
    ],
)
def test_the_rank_that_went_wrong_is_named_not_one_that_noticed(
    ended: dict[int, int], code: int, reason: str | None
) -> None:
    assert attribute_failure(ended, 2, 120.0) == (code, reason)


def test_nccl_waits_longer_than_those_who_name_the_rank_that_hangs() -> None:
    assert group_timeout_seconds(on_gpus=True, timeout=120.0) == 240.0
    assert group_timeout_seconds(on_gpus=False, timeout=120.0) == 120.0
