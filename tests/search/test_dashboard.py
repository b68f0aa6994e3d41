import math

from search.execution.dashboard import Metrics, announce
from search.record.run_state import RunState
from tests.search.runs import Recorder, config, story, typed


class Gauges:
    """Remembers the last value of each series: {(name, tags): value}."""

    def __init__(self):
        self.series = {}
        self.descriptions = {}
        self.made = []

    def __call__(self, name, description, tag_keys):
        self.made.append((name, tag_keys))
        self.descriptions[name] = description
        return _Gauge(self, name, tag_keys)


class _Gauge:
    def __init__(self, gauges, name, tag_keys):
        self.gauges, self.name, self.tag_keys = gauges, name, tag_keys

    def set(self, value, tags):
        assert tuple(tags) == self.tag_keys
        assert math.isfinite(value)
        self.gauges.series[self.name, *tags.values()] = value


RUN = "throughput-2026-11-20-1"


def nothing():
    """Installs no Grafana dashboard."""


def shown(events):
    gauges = Gauges()
    run_state = RunState()
    metrics = Metrics(run_state, gauges, install=nothing)
    for event in typed(events):
        run_state.apply(event)
        metrics(event)
    return gauges


def test_each_objective_is_a_gauge_by_trial():
    gauges = shown(story())
    assert gauges.series["search_val_accuracy", RUN, "t0003"] == 0.71
    assert gauges.series["search_images_per_second", RUN, "t0007"] == 352.0
    assert ("search_val_accuracy", ("run", "trial_id")) in gauges.made
    assert "Unit: images/s" in gauges.descriptions["search_images_per_second"]


def test_a_run_is_named_in_ascii_as_ray_wants_it():
    gauges = shown([{**story()[0], "name": "größer"}, *story()[1:]])
    assert gauges.series["search_val_accuracy", r"gr\xf6\xdfer", "t0003"] == 0.71


def test_what_was_not_measured_is_not_shown():
    gauges = shown(story())
    assert ("search_val_accuracy", RUN, "t0005") not in gauges.series
    assert gauges.series["search_images_per_second", RUN, "t0005"] == 350.0


def test_trials_are_counted_in_every_state_from_the_start():
    states = ("running", "complete", "stopped", "infeasible", "failed")
    assert [shown(story()[:1]).series["search_trials", RUN, state] for state in states] == [0] * 5
    assert [shown(story()).series["search_trials", RUN, state] for state in states] == [1, 6, 1, 2, 2]


def test_hypervolume_is_that_of_the_finished_trials_with_its_reference_point_stated():
    recorder = Recorder()
    assert ("search_hypervolume", RUN) not in shown(recorder.events).series
    recorder.complete("t0001", [0.5], 100.0, config())
    gauges = shown(recorder.events)
    assert gauges.series["search_hypervolume", RUN] > 0
    assert "Reference point: the worst finished trial" in gauges.descriptions["search_hypervolume"]


def test_accuracy_on_generated_pictures_says_so():
    gauges = shown(story(data={"name": "generated", "description": "generated"}))
    assert gauges.descriptions["search_val_accuracy"].startswith("val_accuracy (generated)")


def test_each_gauge_is_made_once():
    made = shown(story()).made
    assert len(made) == len(set(made)) == 4


def test_a_new_ray_is_told_what_happened_before_a_resume():
    events = story()
    gauges = Gauges()
    run_state = RunState(typed(events))
    resume = typed([{"event": "resume"}])[0]
    run_state.apply(resume)
    Metrics(run_state, gauges, install=nothing)(resume)
    assert gauges.series == shown(events).series


def test_a_gauge_that_fails_never_hurts_the_run_and_is_logged_once(caplog):
    def broken(name, description, tag_keys):
        raise RuntimeError("no metrics agent")

    metrics = Metrics(RunState(typed(story())), broken, install=nothing)
    for event in typed(story()):
        metrics(event)
    assert [record.message for record in caplog.records] == ["the dashboard does not show all of this run"]


def test_the_grafana_dashboard_is_offered_at_each_event_as_ray_writes_its_own_a_while_after_it_started():
    asked = []
    metrics = Metrics(RunState(typed(story())), Gauges(), install=lambda: asked.append(1))
    for event in typed(story()):
        metrics(event)
    assert len(asked) == len(story())


def test_the_announcement_tells_the_address_and_the_way_in():
    text = announce("127.0.0.1:8265")
    assert "http://127.0.0.1:8265" in text
    assert "token authentication is on" in text
    assert text.endswith("ray get-auth-token")
    assert announce("http://node:8265").count("http://") == 1
    assert announce(None) == "Ray dashboard: not running"
