"""The Advisor where rates come from probes and accuracies from training: each setting is evaluated once."""

import json
import math
from collections import Counter
from typing import Any

import pytest

from search.advisor.advisor import Advisor
from search.advisor.proposal import Proposal
from search.space.parsing import parse_space
from tests.search.runs import typed

EPOCHS = 9
PARAMETERS: dict[str, Any] = {
    "batch_size": {"values": [64, 128, 256]},
    "learning_rate": {"min": 0.001, "max": 1.0, "log": True, "affects": "trained"},
    "loader": {"values": ["workers", "memory"], "affects": "probed"},
    "num_workers": {"values": [0, 1, 2, 4], "when": {"loader": "workers"}, "affects": "probed"},
    "channels_last": {"values": [True, False], "affects": "probed"},
}
RATE = ("batch_size", "loader", "num_workers", "channels_last")  # parameters that affect the rate
KINDS = 3  # batch sizes: probes at one say little of another


def space(parameters=PARAMETERS, *, trials=12, epochs=EPOCHS, **more):
    return parse_space(
        {
            "evaluation": "decoupled",
            "objectives": [
                {"metric": "accuracy", "goal": "maximize"},
                {"metric": "rate", "goal": "maximize", "probed": True},
            ],
            "parameters": parameters,
            "fixed": {"momentum": 0.9},
            "stopping": {"name": "none"},
            "budget": {"trials": trials, "epochs": epochs},
            **more,
        }
    )


def rate(config):
    """Images per second: one loader, one format are the best at each batch size, and not the same at each."""
    batch = config.get("batch_size", 128)
    loader = 1.5 if config.get("loader") == "memory" else 0.5 + config.get("num_workers", 2) / 5
    if batch == 256:
        loader = 3 - loader
    return 20 * batch**0.7 * loader * (1.3 if config.get("channels_last") else 1.0)


def accuracy(config, epoch):
    batch, learning_rate = config.get("batch_size", 128), config.get("learning_rate", 0.1)
    return (1 - 0.5**epoch) * (0.9 - abs(math.log10(learning_rate * 10)) / 8 - batch / 4000)


class Driver:
    """One event a step; all that it knows can be read from the events."""

    def __init__(self, advisor, events=(), runs=lambda config: True, half_interval=None):
        self.advisor, self.events, self.runs, self.half_interval = advisor, list(events), runs, half_interval
        self.running = {p.trial_id: (p, 0) for p in advisor.replay(typed(self.events))}
        for event in self.events:
            if event["event"] == "measurement" and event["trial_id"] in self.running:
                proposal, _ = self.running[event["trial_id"]]
                self.running[event["trial_id"]] = (proposal, max(1, event["epoch"]))

    def step(self):
        if not self.running:
            if (proposal := self.advisor.propose()) is None:
                return False
            self.running[proposal.trial_id] = (proposal, 0)
            return self.write("start", proposal.trial_id, config=proposal.config, kind=proposal.kind)
        ((trial_id, (proposal, epoch)),) = self.running.items()
        probe = proposal.kind == "probe"
        if not self.runs(proposal.config) or epoch == (1 if probe else EPOCHS):
            del self.running[trial_id]
            state = "complete" if self.runs(proposal.config) else "infeasible"
            self.advisor.finish(trial_id, state)
            return self.write("finish", trial_id, state=state)
        measured = rate(proposal.config)
        metrics = {"rate": measured} | ({} if probe else {"accuracy": accuracy(proposal.config, epoch + 1)})
        if self.half_interval:
            low, high = measured * (1 - self.half_interval), measured * (1 + self.half_interval)
            metrics |= {"rate_low": low, "rate_high": high}
        decision = self.advisor.observe(trial_id, 0 if probe else epoch + 1, metrics)
        self.running[trial_id] = (proposal, epoch + 1)
        return self.write("measurement", trial_id, epoch=0 if probe else epoch + 1, metrics=metrics, decision=decision)

    def write(self, event, trial_id, **fields):
        """As a journal gives it back."""
        self.events.append(json.loads(json.dumps({"event": event, "trial_id": trial_id, **fields})))
        return True


def live(searched, seed=0, most=1000, **more):
    driver = Driver(Advisor(searched, seed=seed), **more)
    while len(driver.events) < most and driver.step():
        pass
    return driver


def told(advisor, proposal, **metrics):
    """What it came to, all at once."""
    config, metrics = proposal.config, {"rate": rate(proposal.config), **metrics}
    if proposal.kind == "train":
        metrics["accuracy"] = accuracy(config, EPOCHS)
    advisor.observe(proposal.trial_id, EPOCHS if proposal.kind == "train" else 0, metrics)
    advisor.finish(proposal.trial_id, "complete")


def starts(driver, kind=None):
    return [e for e in driver.events if e["event"] == "start" and kind in (None, e["kind"])]


def setting(config, names=RATE):
    return tuple((name, config[name]) for name in names if name in config)


@pytest.fixture(scope="module")
def searches():
    return [live(space(), seed) for seed in range(4)]


def test_probes_come_first():
    first = Advisor(space()).propose()
    assert (first.kind, first.trial_id) == ("probe", "p0001")
    assert first.config["momentum"] == 0.9


def test_probes_and_trainings_are_numbered_apart(searches):
    for driver in searches:
        trainings, probes = ([e["trial_id"] for e in starts(driver, kind)] for kind in ("train", "probe"))
        assert trainings == [f"t{i:04d}" for i in range(1, 13)]
        assert probes == [f"p{i:04d}" for i in range(1, len(probes) + 1)]
        assert probes


def test_the_budget_counts_trainings_alone(searches):
    for driver in searches:
        assert len(starts(driver, "train")) == 12 < len(starts(driver))
        assert driver.advisor.propose() is None
        assert driver.advisor.stop_reason == "budget.trials is spent"


def test_no_setting_is_probed_twice(searches):
    for driver in searches:
        assert max(Counter(setting(e["config"]) for e in starts(driver, "probe")).values()) == 1


def test_a_setting_whose_rate_a_training_has_measured_is_not_probed_any_more(searches):
    for driver in searches:
        trained = set()
        for event in starts(driver):
            if event["kind"] == "train":
                trained.add(setting(event["config"]))
            else:
                assert setting(event["config"]) not in trained


def test_a_training_takes_the_winner_of_the_probes(searches):
    """Of all that was probed or trained at its batch size so far, the fastest."""
    for driver in searches:
        known: list[dict[str, Any]] = []
        for event in starts(driver):
            alike = [config for config in known if config["batch_size"] == event["config"]["batch_size"]]
            if event["kind"] == "train" and alike:
                assert rate(event["config"]) >= max(map(rate, alike))
            known.append(event["config"])


def test_probes_find_the_best_setting_or_nearly(searches):
    """The last training at each batch size is within 5 % of the fastest of 10 settings: 10 times in 12."""
    loaders: list[dict[str, Any]] = [
        {"loader": "memory"},
        *({"loader": "workers", "num_workers": count} for count in (0, 1, 2, 4)),
    ]
    found = []
    for driver in searches:
        last = {e["config"]["batch_size"]: e["config"] for e in starts(driver, "train")}
        for batch, config in last.items():
            best = max(rate({"batch_size": batch, "channels_last": True, **loader}) for loader in loaders)
            found.append(rate(config) > 0.95 * best)
    assert sum(found) >= 9


def test_what_only_training_depends_on_never_causes_a_probe(searches):
    """All probes between two trainings prepare the second: they have its learning rate and its batch size."""
    for driver in searches:
        waiting = []
        for event in starts(driver):
            if event["kind"] == "probe":
                waiting.append(event["config"])
                continue
            for config in waiting:
                assert config["learning_rate"] == event["config"]["learning_rate"]  # to the last digit
                assert config["batch_size"] == event["config"]["batch_size"]
            waiting = []


def test_there_are_fewer_probes_than_settings(searches):
    """Thirty of them."""
    assert max(len(starts(driver, "probe")) for driver in searches) <= 20


def test_where_a_probe_tells_little_there_are_hardly_more_of_them(searches):
    uncertain = [live(space(), seed, half_interval=0.8) for seed in range(4)]
    exact_probes, uncertain_probes = (sum(len(starts(d, "probe")) for d in some) for some in (searches, uncertain))
    assert uncertain_probes <= 1.4 * exact_probes


@pytest.mark.parametrize("trained_only", [{}, {"learning_rate": PARAMETERS["learning_rate"]}], ids=["all", "trained"])
def test_where_nothing_bears_on_the_rate_alone_there_are_no_probes(trained_only):
    shared = {name: {**PARAMETERS[name], "affects": "all"} for name in ("batch_size", "channels_last")}
    driver = live(space({**shared, **trained_only}, trials=9 if not trained_only else 10))
    assert {e["kind"] for e in starts(driver)} == {"train"}


@pytest.mark.parametrize(("only", "trainings"), [("learning_rate", 10), ("channels_last", 1)])
def test_an_objective_may_depend_on_no_parameter_at_all(only, trainings):
    """On the rate nothing bears, or on the accuracy: then one training is enough."""
    assert len(starts(live(space({only: PARAMETERS[only]}, trials=10)), "train")) == trainings


def test_without_a_probed_objective_there_are_no_probes():
    metrics = [{"metric": "accuracy", "goal": "maximize"}, {"metric": "rate", "goal": "maximize"}]
    assert {e["kind"] for e in starts(live(space(objectives=metrics, trials=3)))} == {"train"}


@pytest.mark.parametrize("searcher", ["gp", "tpe"])
@pytest.mark.parametrize("cut", [2, 17, 130, *(pytest.param(cut, marks=pytest.mark.slow) for cut in (1, 3, 48, 91))])
def test_a_search_resumed_from_its_journal_goes_on_as_if_never_interrupted(searcher, cut):
    """Within a probe, between probes, within a training."""
    searched = space(searcher={"name": searcher})
    whole = live(searched, most=140)
    resumed = Driver(Advisor(searched), whole.events[:cut])
    while len(resumed.events) < len(whole.events):
        resumed.step()
    assert resumed.events == whole.events


def test_replay_takes_a_probe_for_a_probe():
    events = live(space(), most=1).events
    (pending,) = Advisor(space()).replay(typed(events))
    assert (pending.trial_id, pending.kind) == ("p0001", "probe")
    with pytest.raises(ValueError, match="a probe, cannot have been started there"):
        Advisor(space()).replay(typed([{**events[0], "trial_id": "t0001"}]))


def test_probes_use_up_no_epochs():
    driver = live(space(trials=4, budget={"total_epochs": 4 * EPOCHS, "epochs": EPOCHS}))
    assert len(starts(driver, "train")) == 4
    assert driver.advisor.stop_reason == "budget.total_epochs is spent"


def cannot_run(name, value, seed):
    """Of the 12 trainings and their probes, what was tried of what never runs."""
    driver = live(space(), seed, runs=lambda config: config.get(name) != value)
    assert len(starts(driver, "train")) == 12
    return [e for e in starts(driver) if e["config"].get(name) == value]


@pytest.mark.slow
def test_a_probe_that_cannot_run_is_not_asked_for_again():
    """A third of the batch sizes, or one of the loaders; four seeds."""
    for seed in range(4):
        for name, value in (("batch_size", 256), ("loader", "memory"), ("channels_last", True)):
            probes = [e for e in cannot_run(name, value, seed) if e["kind"] == "probe"]
            assert max(Counter(setting(e["config"]) for e in probes).values(), default=0) <= 1


def test_a_search_comes_to_its_end_where_nothing_runs():
    driver = live(space(trials=3), most=500, runs=lambda config: False)
    assert driver.advisor.stop_reason == "budget.trials is spent"


def test_two_that_prepare_at_once_probe_different_settings():
    """Two trials run side by side: the second is asked for while the first probe is on its way."""
    advisor, probed = Advisor(space(concurrent_trials=2)), []
    running: list[Proposal] = []
    while (proposal := advisor.propose()) or running:
        running += [proposal] if proposal else []
        if proposal and proposal.kind == "probe":
            probed.append(setting(proposal.config))
        if len(running) == 2 or not proposal:
            told(advisor, running.pop(0))
    assert len(set(probed)) == len(probed)


@pytest.mark.parametrize(("searcher", "trials"), [("gp", 6), ("tpe", 4)])
def test_nothing_is_trained_twice_while_anything_is_untrained(searcher, trials):
    """Of six learning rates; each is trained with what was probed to be the fastest, whatever was drawn."""
    listed = {
        "learning_rate": {"values": [0.01, 0.02, 0.05, 0.1, 0.2, 0.5], "affects": "trained"},
        "num_workers": {"values": [0, 1, 2, 4], "affects": "probed"},
    }
    for seed in range(3):
        driver = live(space(listed, trials=trials, searcher={"name": searcher}), seed)
        trained = [setting(e["config"], ("learning_rate", "num_workers")) for e in starts(driver, "train")]
        assert len(set(trained)) == trials


def test_settings_from_a_range_are_trained_as_they_were_probed():
    ranges = {**PARAMETERS, "prefetch": {"min": 1, "max": 100, "type": "int", "affects": "probed"}}
    driver = live(space(ranges, trials=5))
    probed = [setting(e["config"], (*RATE, "prefetch")) for e in starts(driver, "probe")]
    assert all(setting(e["config"], (*RATE, "prefetch")) in probed for e in starts(driver, "train"))


def test_a_setting_that_breaks_a_constraint_does_not_win():
    """The faster format takes all the memory there is."""
    advisor, trained = Advisor(space(constraints=["memory <= 0.9"])), []
    while proposal := advisor.propose():
        heavy = bool(proposal.config["channels_last"])
        trained += [heavy] if proposal.kind == "train" else []
        told(advisor, proposal, memory=1.0 if heavy else 0.5)
    assert sum(trained[4:]) <= 2


def test_rates_that_earlier_runs_know_are_not_probed_again():
    before = live(space(trials=4))
    measured = {e["trial_id"]: e["metrics"]["rate"] for e in before.events if e["event"] == "measurement"}
    known = [
        {
            "config": {n: v for n, v in e["config"].items() if n != "momentum"},
            "metrics": {"rate": measured[e["trial_id"]]},
        }
        for e in starts(before, "probe")
    ]
    after = live(space(trials=4), events=[{"event": "known", "measurements": known}])

    def settings(driver):
        return {tuple(event["config"].get(name) for name in RATE) for event in starts(driver, "probe")}

    assert len(settings(before)) > 5
    assert not settings(before) & settings(after)
    assert len(starts(after, "probe")) <= len(starts(before, "probe")) / 2


@pytest.mark.parametrize("seed", range(4))
def test_a_setting_is_not_taken_for_one_without_effect_before_it_was_varied(seed):
    """The best of 32 settings of two parameters, whose effects three probes do not show."""
    threads, workers = [1, 2, 4, 8], list(range(8))
    parameters = {
        "learning_rate": PARAMETERS["learning_rate"],
        "num_workers": {"values": workers, "affects": "probed"},
        "threads": {"values": threads, "affects": "probed"},
    }
    advisor = Advisor(space(parameters, trials=4), seed=seed)
    while (proposal := advisor.propose()) is not None:
        config: dict[str, Any] = proposal.config
        seconds = 1 + 0.2 * abs(config["num_workers"] - 5) + 0.1 * abs(config["threads"] - 4)
        metrics = {"rate": 1000 / seconds, "accuracy": 0.5}
        advisor.observe(proposal.trial_id, EPOCHS if proposal.kind == "train" else 0, metrics)
        advisor.finish(proposal.trial_id, "complete")
        last = proposal
    assert last.config["num_workers"] == 5
    assert last.config["threads"] == 4


def test_probes_take_no_more_than_their_part_of_a_short_search():
    """Of three minutes one, at ten seconds each; and many of a long one."""
    probes = []
    for hours in (0.05, 10):
        driver = Driver(Advisor(space(budget={"hours": hours, "trials": 12, "epochs": EPOCHS})))
        while driver.step():
            pass
        probes.append(sum(event["event"] == "start" and event["kind"] == "probe" for event in driver.events))
    assert probes[0] == 6 < probes[1]
