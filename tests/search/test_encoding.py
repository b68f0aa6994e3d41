import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from search.advisor.encoding import INACTIVE, Encoding
from search.space.parameters import Choice
from search.space.parsing import parse_space
from trainables.contract import Scalar

OBJECTIVES = [{"metric": "accuracy", "goal": "maximize"}, {"metric": "rate", "goal": "maximize"}]
CHOICES = {
    "loader": {"values": ["workers", "memory", "device"]},
    "num_workers": {"values": [8, 0, 2], "when": {"loader": "workers"}},
    "pin_memory": {"values": [True, False], "when": {"num_workers": [2, 8]}},
    "batch_size": {"values": [64, 128]},
}
COUNT = 40


def space(parameters, fixed=None):
    return parse_space(
        {"objectives": OBJECTIVES, "parameters": parameters, "fixed": fixed or {}, "budget": {"trials": 8}}
    )


ordinals = st.lists(st.integers(-9, 2048) | st.floats(-9, 9), min_size=1, max_size=6, unique=True)
words = st.lists(st.text(min_size=1, max_size=3), min_size=1, max_size=5, unique=True)
mixed = st.lists(st.booleans() | st.text(max_size=2), min_size=1, max_size=3, unique=True)
choices = (ordinals | words | mixed).map(lambda values: {"values": values})
ranges = st.tuples(st.floats(1e-6, 1.0), st.floats(1.5, 1e6), st.booleans()).map(
    lambda r: {"min": r[0], "max": r[1], "log": r[2]}
)
whole_ranges = st.tuples(st.integers(1, 9), st.integers(10, 5000), st.booleans()).map(
    lambda r: {"min": r[0], "max": r[1], "log": r[2], "type": "int"}
)
below_zero = st.tuples(st.integers(-9, -1), st.integers(0, 9), st.sampled_from(["int", "float"])).map(
    lambda r: {"min": r[0], "max": r[1], "type": r[2]}
)


@st.composite
def spaces(draw):
    """Up to four parameters; each may wait for one or two before it, or for what is fixed."""
    drawn = draw(st.lists(choices | ranges | whole_ranges | below_zero, min_size=1, max_size=4))
    parameters = {f"p{i}": {**parameter} for i, parameter in enumerate(drawn)}
    for i, parameter in enumerate(parameters.values()):
        above = [f"p{j}" for j in range(i) if "values" in parameters[f"p{j}"]] + ["fixed"]
        waits_for = draw(st.lists(st.sampled_from(above), max_size=2, unique=True))
        parameter["when"] = {
            other: draw(
                st.lists(
                    st.sampled_from([1, 2] if other == "fixed" else parameters[other]["values"]),
                    min_size=1,
                    max_size=2,
                    unique=True,
                )
            )
            for other in waits_for
        }
    return space(parameters, {"fixed": 1})


def all_rows(space, rng):
    """In each of the ways in which rows are made."""
    encoding = Encoding(space)
    drawn = encoding.random(rng, COUNT)
    every = encoding.columns(space.parameters)
    return encoding, [drawn, encoding.neighbours(rng, drawn, 0.15), encoding.choices(drawn[0], every, COUNT, rng)]


of_spaces = given(spaces(), st.integers(0, 2**32 - 1).map(np.random.default_rng))
patient = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])


@patient
@of_spaces
def test_a_row_becomes_a_configuration_of_the_space(space, rng):
    """Parameters that are active, and no others, with values that they can have."""
    encoding, tables = all_rows(space, rng)
    for row in np.vstack(tables):
        config = encoding.config(row)
        assert set(config) == {name for name in space.parameters if space.active(name, config)}
        for name, value in config.items():
            parameter = space.parameters[name]
            assert parameter.contains(value)
            if not isinstance(parameter, Choice):
                assert isinstance(value, int if parameter.type == "int" else float)


@patient
@of_spaces
def test_a_configuration_becomes_the_row_that_it_came_from(space, rng):
    """To the bit where values can be counted: that is how a repeat is known."""
    encoding, tables = all_rows(space, rng)
    rows = np.vstack(tables)
    again = encoding.rows(encoding.config(row) for row in rows)
    assert again == pytest.approx(rows, abs=1e-9)
    counted = [isinstance(p, Choice) or p.type == "int" for p in space.parameters.values()]
    assert again[:, counted].tobytes() == rows[:, counted].tobytes()


@patient
@of_spaces
def test_equal_configurations_are_equal_rows(space, rng):
    """A parameter that is out of play does not tell them apart."""
    encoding, tables = all_rows(space, rng)
    rows: dict[str, set[bytes]] = {}
    for row in np.vstack(tables):
        rows.setdefault(repr(encoding.config(row)), set()).add(row.tobytes())
    assert all(len(found) == 1 for found in rows.values())


@patient
@of_spaces
def test_positions_are_from_0_to_1_or_a_place_in_the_list(space, rng):
    _, tables = all_rows(space, rng)
    for column, parameter in zip(np.vstack(tables).T, space.parameters.values(), strict=True):
        active = column[column != INACTIVE]
        highest = len(parameter.values) - 1 if isinstance(parameter, Choice) else 1
        assert ((active >= 0) & (active <= highest)).all()


@patient
@of_spaces
def test_every_feature_has_a_length_scale(space, rng):
    encoding, (rows, *_) = all_rows(space, rng)
    for names in (space.parameters, list(space.parameters)[:1], list(space.parameters)[-2:]):
        columns = encoding.columns(names)
        features, scale_of = encoding.features(rows, columns), encoding.scale_of(columns)
        assert features.shape == (COUNT, len(scale_of))
        assert np.isfinite(features).all()
        assert sorted(set(scale_of)) == list(range(scale_of.max() + 1))


@patient
@of_spaces
def test_features_are_of_the_parameters_asked_for_alone(space, rng):
    encoding, (rows, *_) = all_rows(space, rng)
    first = encoding.columns(list(space.parameters)[:1])
    changed = encoding.random(rng, COUNT)
    changed[:, first] = rows[:, first]
    assert (encoding.features(changed, first) == encoding.features(rows, first)).all()


def test_choices_are_all_that_the_space_has():
    """As the grid counts them."""
    listed = space(CHOICES)
    encoding, rng = Encoding(listed), np.random.default_rng(0)
    rows = encoding.choices(encoding.random(rng, 1)[0], encoding.columns(CHOICES), COUNT, rng)
    found = [encoding.config(row) for row in np.unique(rows, axis=0)]
    assert len(found) == len(listed.grid()) == 14
    assert all(config in found for config in listed.grid())


def test_choices_keep_all_but_the_columns_asked_for():
    encoding, rng = Encoding(space(CHOICES)), np.random.default_rng(0)
    (row,) = encoding.rows([{"loader": "memory", "batch_size": 128}])
    rows = encoding.choices(row, encoding.columns(["loader", "num_workers"]), COUNT, rng)
    configs = [encoding.config(row) for row in np.unique(rows, axis=0)]
    assert {config["batch_size"] for config in configs} == {128}
    with_workers = [config["num_workers"] for config in configs if config["loader"] == "workers"]
    assert sorted(with_workers) == [0, 2, 8]
    assert sorted(config["loader"] for config in configs if config["loader"] != "workers") == ["device", "memory"]


LAST = {"a few": {"values": list(range(15))}, "many": {"values": list(range(30))}, "range": {"min": 0.0, "max": 1.0}}


@pytest.mark.parametrize("last", LAST.values(), ids=LAST)
def test_of_too_many_choices_some_are_drawn_from_everywhere(last):
    """With 50 of 150, of 300 or of a range, none of ten values goes missing but once in twenty times."""
    parameters = {"first": {"values": list(range(10))}, "last": last}
    encoding, rng = Encoding(space(parameters)), np.random.default_rng(0)
    rows = encoding.choices(encoding.random(rng, 1)[0], encoding.columns(parameters), 50, rng)
    assert 40 <= len(rows) <= 50
    assert len(set(rows[:, 0])) == 10


def test_choices_of_no_columns_are_the_row_itself():
    encoding, rng = Encoding(space(CHOICES)), np.random.default_rng(0)
    (row,) = encoding.random(rng, 1)
    assert (encoding.choices(row, np.empty(0, dtype=int), COUNT, rng) == row[None]).all()


def test_ordinal_values_are_numbered_in_ascending_order():
    encoding = Encoding(space({"batch_size": {"values": [512, 64, 128]}}))
    rows = encoding.rows([{"batch_size": 64}, {"batch_size": 128}, {"batch_size": 512}])
    assert rows[:, 0].tolist() == [0, 1, 2]
    assert encoding.features(rows, np.array([0]))[:, 0].tolist() == [0, 0.5, 1]


def test_equal_ratios_of_a_log_range_are_equally_far_apart():
    encoding = Encoding(space({"rate": {"min": 0.001, "max": 1.0, "log": True}}))
    rows = encoding.rows([{"rate": rate} for rate in (0.001, 0.01, 0.1, 1.0)])
    assert rows[:, 0] == pytest.approx([0, 1 / 3, 2 / 3, 1])


@pytest.mark.parametrize("names", [["a", "b"], [True, False]])
def test_two_names_are_as_far_apart_as_the_ends_of_an_ordinal(names):
    encoding = Encoding(space({"which": {"values": names}}))
    first, second = encoding.features(encoding.rows([{"which": name} for name in names]), np.array([0]))
    assert ((first - second) ** 2).sum() == pytest.approx(1.0)


@pytest.mark.parametrize(("count", "gap"), [(3, (2 / 3) ** 0.5), (8, 0.5), (50, 0.2)])
def test_names_are_equally_far_apart_but_for_their_place_and_nearer_the_more_there_are(count, gap):
    names = [f"name {i:02d}" for i in range(count)]
    encoding = Encoding(space({"which": {"values": names}}))
    features = encoding.features(encoding.rows([{"which": name} for name in names]), np.array([0]))
    identity, place = features[:, :-1], features[:, -1]
    gaps = ((identity[:, None] - identity[None, :]) ** 2).sum(axis=2)
    assert gaps == pytest.approx(gap * (1 - np.eye(count)))
    assert place == pytest.approx(np.linspace(0, 1, count))
    assert encoding.scale_of(np.array([0])).tolist() == [0] * count + [1]


def test_what_is_out_of_play_for_one_value_of_what_is_fixed_never_comes_into_play():
    parameters = {"momentum": {"min": 0.0, "max": 1.0, "when": {"optimizer": "sgd"}}, "width": {"values": [1, 2]}}
    rng = np.random.default_rng(0)
    for optimizer, active in (("sgd", True), ("adamw", False)):
        encoding = Encoding(space(parameters, {"optimizer": optimizer}))
        assert ((encoding.random(rng, COUNT)[:, 0] != INACTIVE) == active).all()


def test_rows_are_drawn_evenly():
    """3000 of them: each share is within five standard errors."""
    parameters = {"loader": CHOICES["loader"], "rate": {"min": 0.1, "max": 10.0, "log": True}}
    encoding = Encoding(space(parameters))
    rows = encoding.random(np.random.default_rng(0), 3000)
    shares = [(rows[:, 0] == k).mean() for k in range(3)] + [
        (rows[:, 1] < third / 3).mean() / third for third in (1, 2)
    ]
    assert shares == pytest.approx([1 / 3] * 5, abs=5 * (2 / 9 / 3000) ** 0.5)


def test_likely_values_are_drawn_more_often_and_no_value_never():
    likely = {
        "loader": {"values": ["workers", "memory", "device"], "likely": "memory"},
        "num_workers": {"values": [8, 0, 2], "likely": [2, 8], "when": {"loader": "workers"}},
        "lr": {"min": 0.001, "max": 1.0, "log": True, "likely": "0.01 to 0.1"},
    }
    encoding = Encoding(space(likely))
    rng = np.random.default_rng(0)
    drawn = [encoding.config(row) for row in encoding.random(rng, 3000)]
    rates = np.array([config["lr"] for config in drawn])
    assert np.mean([config["loader"] == "memory" for config in drawn]) == pytest.approx(0.5 + 0.5 / 3, abs=0.03)
    assert np.mean((rates >= 0.01) & (rates <= 0.1)) == pytest.approx(0.5 + 0.5 / 3, abs=0.03)
    assert {config["loader"] for config in drawn} == {"workers", "memory", "device"}
    assert rates.min() < 0.002
    assert rates.max() > 0.5


def test_neighbours_differ_in_one_parameter_and_reach_the_ends_of_a_range_and_all_values_of_a_list():
    encoding = Encoding(space({"x": {"min": 0.0, "max": 1.0}, **CHOICES}))
    config: dict[str, Scalar] = {"x": 0.5, "loader": "workers", "num_workers": 0, "batch_size": 64}
    rows = encoding.rows([config])
    found = [encoding.config(near) for near in encoding.neighbours(np.random.default_rng(0), rows, 0.2)]
    assert [near["x"] for near in found if near["x"] != 0.5] == pytest.approx([0.0, 0.3, 0.45, 0.55, 0.7, 1.0])
    others = [{name for name, value in near.items() if config.get(name) != value} for near in found]
    assert others.count({"x"}) == 6
    assert {near["loader"] for near in found} == {"workers", "memory", "device"}
    assert {near["num_workers"] for near in found if "num_workers" in near} == {0, 2, 8}
    assert others.count({"batch_size"}) == 1
    assert len(found) == 6 + 2 + 2 + 1


def test_where_nothing_is_searched_there_are_no_neighbours():
    encoding = Encoding(space({"batch_size": {"values": [64]}}))
    assert not len(encoding.neighbours(np.random.default_rng(0), encoding.rows([{"batch_size": 64}]), 0.2))


def test_neighbours_of_several_rows_are_those_of_each():
    parameters = {"x": {"min": 0.0, "max": 1.0}, "n": {"min": 1, "max": 64, "type": "int", "log": True}}
    encoding = Encoding(space({**parameters, "which": {"values": ["a", "b", "c"]}}))
    rows = encoding.random(np.random.default_rng(0), 4)
    together = encoding.neighbours(np.random.default_rng(0), rows, 0.2)
    each = [encoding.neighbours(np.random.default_rng(0), row[None], 0.2) for row in rows]
    assert sorted(map(bytes, together)) == sorted(map(bytes, np.vstack(each)))


def test_the_same_generator_gives_the_same_rows():
    encoding = Encoding(space({**CHOICES, "rate": {"min": 0.0, "max": 1.0}}))
    tables = [all_rows(space(CHOICES), np.random.default_rng(7))[1] for _ in range(2)]
    assert all((a == b).all() for a, b in zip(*tables, strict=True))
    assert (encoding.random(np.random.default_rng(1), 9) == encoding.random(np.random.default_rng(1), 9)).all()
