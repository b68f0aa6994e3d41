"""The reference step: real work that is always the same, and leaves no trace."""

import torch

from trainables.measure.reference_step import ReferenceStep


def test_it_tells_the_seconds_of_its_own_step() -> None:
    ticks = iter(range(100))
    assert ReferenceStep(clock=lambda: float(next(ticks)))() == 1.0


def test_the_trials_random_numbers_and_gradients_mode_stay_what_they_were() -> None:
    torch.manual_seed(7)
    state = torch.get_rng_state()
    with torch.no_grad():
        assert ReferenceStep()() > 0
        assert not torch.is_grad_enabled()
    assert torch.equal(torch.get_rng_state(), state)


def test_it_learns_nothing_so_its_work_stays_the_same() -> None:
    reference_step = ReferenceStep()
    before = [x.detach().clone() for x in reference_step._model.parameters()]
    for _ in range(3):
        reference_step()
    assert all(torch.equal(a, b) for a, b in zip(before, reference_step._model.parameters(), strict=True))
    assert all(x.grad is None for x in reference_step._model.parameters())
