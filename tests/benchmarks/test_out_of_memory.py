import numpy as np
from out_of_memory import CAPACITY_GIB, Toy, lost, needed_gib, outcome
from problems import sample


def test_two_fifths_of_the_space_cannot_run():
    generator = np.random.default_rng(0)
    share = np.mean([needed_gib(sample(Toy(), generator)) > CAPACITY_GIB for _ in range(5000)])
    assert abs(share - 0.4) < 0.03  # 4 sigma


def test_both_objectives_pull_towards_what_cannot_run():
    base = {"batch_size": 256, "width": 1.0, "precision": "bf16", "strategy": "single", "num_workers": 4}
    base["learning_rate"] = 0.1
    assert outcome({**base, "batch_size": 1024})[1] > outcome(base)[1]
    assert outcome({**base, "width": 2.0})[0] > outcome(base)[0]


def test_random_search_loses_the_share_of_the_space():
    assert abs(np.mean([lost("random", seed) for seed in range(20)]) - 0.4) < 0.07  # 4 sigma
