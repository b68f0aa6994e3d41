import base64
import hashlib
import html
import json
import re
import subprocess
import sys
import time
import tomllib
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pytest

from search.page import curves
from search.page import page as page_module
from search.page.page import page, write_page
from search.page.render import ENVIRONMENT
from search.results import load
from search.runs.index_page import SCRIPTS
from tests.search.page_runs import empty, scaling, throughput
from tests.search.runs import INFO, STARTED_AT, Recorder, config, interval, story, write_run

HOSTILE = "</script><img src=x onerror=alert(1)>\"'&<!--"


class Elements(HTMLParser):
    """All elements of a page with their attributes, and the text inside each kind of them."""

    def __init__(self, text):
        super().__init__()
        self.all = []
        self._open = []
        self.text: Counter[str] = Counter()
        self.texts = {}
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.all.append((tag, dict(attributes)))
        self._open.append(tag)

    def handle_endtag(self, tag):
        while self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data):
        if self._open:
            self.texts.setdefault(self._open[-1], []).append(data)

    def of(self, tag, **wanted):
        found = [attributes for name, attributes in self.all if name == tag]
        return [a for a in found if all(a.get(key) == value for key, value in wanted.items())]


def text_of(folder, events, **options):
    return page(load(write_run(folder, events)), **options)


def flat(text):
    return " ".join(html.unescape(re.sub(r"<[^>]+>", "", text)).split())


def classes(elements, tag="a"):
    """Classes of what is drawn, by trial."""
    return {a["data-t"]: set(a["class"].split()) for a in elements.of(tag) if "data-t" in a and a.get("class")}


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    return text_of(tmp_path_factory.mktemp("told") / "run", story())


@pytest.fixture(scope="module")
def drawn(told):
    return Elements(told)


# --- the file ---------------------------------------------------------------------------------------------------------


def test_no_name_can_become_markup(tmp_path):
    space = {**INFO["space"], "parameters": {HOSTILE: {"values": [HOSTILE, "b"]}, **INFO["space"]["parameters"]}}
    info = {"name": HOSTILE, "data": {"name": "folder", "description": HOSTILE}, "commit": HOSTILE, "space": space}
    metric = f"{HOSTILE}_accuracy"
    objectives = [{"metric": metric, "goal": "maximize"}, INFO["objectives"][1]]
    recorder = Recorder(**info, objectives=objectives, left_out=[HOSTILE], command=["python", HOSTILE])
    for i, value in enumerate([HOSTILE, "b", HOSTILE]):
        name = f"t{i}{HOSTILE}"
        recorder.start(name, **{**config(), HOSTILE: value})
        for epoch in (1, 2):
            recorder.measure(name, epoch, **{metric: 0.2 * i + 0.1 * epoch, "images_per_second": 300.0 - i})
        recorder.finish(name, "complete" if i else "failed", None if i else HOSTILE)
    elements = Elements(text_of(tmp_path / "run", recorder.events))
    assert elements.of("img") == []
    assert len(elements.of("script")) == 2
    assert not [a for _, attributes in elements.all for a in attributes if a.startswith("on")]
    assert json.loads(elements.texts["script"][0])["run"] == HOSTILE
    assert elements.texts["h1"] == [HOSTILE]


@pytest.mark.parametrize("kind", ["style", "script"])
def test_the_policy_allows_what_is_in_the_page_and_nothing_else(told, kind):
    policy = html.unescape(re.search(r'Content-Security-Policy" content="([^"]*)"', told)[1])
    content = re.findall(rf"<{kind}>(.*?)</{kind}>", told, re.DOTALL)
    assert len(content) == 1
    digest = base64.b64encode(hashlib.sha256(content[0].encode()).digest()).decode()
    assert f"{kind}-src 'sha256-{digest}';" in policy
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy


def test_nothing_in_it_leads_out_of_the_file(drawn):
    loading = [
        a for _, attributes in drawn.all for a in attributes if a in ("src", "srcset", "action", "data", "style")
    ]
    assert loading == []
    assert drawn.of("link") == []
    assert all(a["href"].startswith("#") for a in drawn.of("a"))


@pytest.mark.parametrize("made", [throughput, scaling, empty], ids=["throughput", "scaling", "empty"])
def test_every_link_leads_somewhere_and_every_name_is_given_once(tmp_path, made):
    elements = Elements(text_of(tmp_path / "run", made().events))
    names = [attributes["id"] for _, attributes in elements.all if "id" in attributes]
    assert [name for name, times in Counter(names).items() if times > 1] == []
    assert {a["href"][1:] for a in elements.of("a")} <= set(names)
    assert {attributes["data-t"] for _, attributes in elements.all if "data-t" in attributes} <= set(names)


def test_the_same_run_gives_the_same_page(tmp_path):
    run = load(write_run(tmp_path / "run", throughput(16).events))
    assert page(run) == page(run)


def test_it_is_written_into_the_folder_whole_and_leaves_nothing_beside_it(tmp_path):
    folder = write_run(tmp_path / "run", story())
    assert write_page(load(folder)) == folder / "report.html"
    assert sorted(path.name for path in folder.iterdir()) == ["journal.jsonl", "report.html"]
    assert (folder / "report.html").read_text().endswith("</html>\n")


def test_the_page_of_a_running_run_reloads_itself_and_that_of_an_ended_run_does_not(tmp_path):
    run = load(write_run(tmp_path / "run", throughput(8, finished=False).events))
    running, ended = page(run, now=STARTED_AT + 300.0), page(run)
    assert '<noscript><meta http-equiv="refresh" content="10"></noscript>' in running
    assert '"refreshSeconds":10' in running
    assert "7 of 8 trials" in flat(running)
    assert "Now: t0008 (epoch 8/12)" in flat(running)
    assert 'http-equiv="refresh"' not in ended
    assert '"refreshSeconds":null' in ended
    assert "interrupted" in flat(ended)
    assert "The run has not ended" in flat(page(load(write_run(tmp_path / "signalled", signalled()))))


def signalled():
    """A run that Ctrl-C has ended."""
    recorder = throughput(8)
    recorder.events[-1] = {**recorder.events[-1], "reason": "interrupted by SIGINT"}
    return recorder.events


@pytest.mark.parametrize("epochs", [3, pytest.param(50, marks=pytest.mark.slow)])
def test_a_thousand_trials_stay_a_page(tmp_path, epochs):
    folder = write_run(tmp_path / "run", throughput(1000, epochs).events)
    began = time.process_time()
    path = write_page(load(folder))
    assert time.process_time() - began < 60  # 3.3 s of a quiet core: a bound for what has gone wrong, not a measurement
    assert path.stat().st_size < 3_000_000


def test_neither_ray_nor_torch_nor_optuna_is_needed_to_write_one(tmp_path):
    """Optuna only where there are enough trials for it."""
    folder = write_run(tmp_path / "run", story())
    code = (
        "import sys; from search.page.page import write_page; from search.results import load;"
        "write_page(load(sys.argv[1]));"
        "print([name for name in ('ray', 'torch', 'optuna') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_styles_scripts_and_templates_are_in_the_package_that_is_installed():
    root = Path(__file__).parents[2]
    packaging = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["setuptools"]
    assert "search*" in packaging["packages"]["find"]["include"]
    installed = {
        path for pattern in packaging["package-data"]["search.page"] for path in (root / "search/page").glob(pattern)
    }
    templates = {name for name in ENVIRONMENT.list_templates() if name.endswith(".html")}
    assert {path.name for path in installed} == {*page_module.STYLES, *page_module.SCRIPTS, *SCRIPTS, *templates}
    assert {"page.html", "macros.html"} <= templates


# --- what it says -----------------------------------------------------------------------------------------------------


def test_it_begins_with_what_to_run_why_and_how_sure(told):
    answer = flat(told.split('class="answer"')[1].split("</section>")[0])
    assert "Run t0007, the best compromise." in answer
    assert "val_accuracy0.7000 ± 0.013" in answer
    assert "images_per_second352 ± 4" in answer
    assert "It belongs to the Pareto front with a probability of 100%" in answer
    assert "It was trained once (n = 1)" in answer
    assert (
        "Against the most accurate: val_accuracy 1.00 points lower (2.79 lower to 0.79 higher), "
        "1.96 (1.93 to 1.99) times its" in answer
    )


def test_each_pick_has_a_command_and_yaml_to_copy(told):
    cards = told.split('id="picks"')[1].split("</section>")[0]
    assert re.findall(r"<h3>(.*?) <a", cards) == ["Knee", "Most accurate", "Fastest"]
    assert cards.count("--trial t0007") == 1
    assert cards.count("python -m trainables.train --trainable vgg19_cifar10") == 3
    assert cards.count("trainable: &#34;vgg19_cifar10&#34;") == 3
    assert cards.count('<button type="button" class="js copy">Copy</button>') == 9


def test_a_run_without_a_front_says_so_and_why(tmp_path):
    text = flat(text_of(tmp_path / "run", empty().events))
    assert "No configuration to recommend: no trial completed, so there is no Pareto front." in text
    assert "infeasible, 3 trials (t0001, t0002 and t0003): out of memory: 21.3 GiB asked for" in text


def test_a_run_without_trials_is_a_page_too(tmp_path):
    assert "no trial was started" in flat(text_of(tmp_path / "run", Recorder().events))


def test_pictures_that_were_generated_are_said_to_be(tmp_path):
    events = story(data={"name": "generated", "description": "generated: 2,000 pictures"})
    text = flat(text_of(tmp_path / "run", events))
    assert "This run used no real images." in text
    assert "val_accuracy (generated)" in text


def test_the_conditions_of_the_numbers_are_told(told):
    conditions = flat(told.split('id="conditions"')[1].split("</section>")[0])
    for words in ("Commit: abc1234", "Machine: Intel(R) Xeon(R) Processor, 2 cores", "torch 2.15.0", "Seed: 0"):
        assert words in conditions


def test_all_trials_are_rows_with_what_was_set_and_measured(told, drawn):
    rows = {a["id"]: a for a in drawn.of("tr") if "id" in a}
    assert list(rows) == ["t0003", "t0007", "t0011", *(f"t{i:04d}" for i in (1, 2, 4, 5, 6, 8, 9, 10, 12))]
    assert rows["t0002"]["data-state"] == "infeasible"
    row = flat(told.split('<tr id="t0002"')[1].split("</tr>")[0].replace("</td>", " | "))
    assert "fp32" in row
    assert "out of memory: 21.3 GiB asked for, 18.9 GiB free" in row


def test_what_bears_on_scaling_is_told_as_in_the_summary_with_tables_whole(tmp_path):
    text = text_of(tmp_path / "run", scaling().events)
    section = text.split('id="scaling"')[1].split("</section>")[0]
    headings = re.findall(r"<th [^>]*>(.*?)</th>", section.split("</table>")[0])
    assert headings[:4] == ["processes", "images/s", "times one", "efficiency"]
    assert "bound by" in headings  # of the summary's next table, which begins with the same processes
    assert 'id="batch-size"' in text


def test_what_was_not_measured_is_named(told):
    load = flat(told.split('id="machine-load"')[1].split("</section>")[0])
    assert "Not measured: CPU, the trial's cores" in load
    assert "Not measured: no trial profiled its steps." in flat(told)
    assert "Too few trials: 6 measured it, 10 are needed." in flat(told)


# --- what it draws ----------------------------------------------------------------------------------------------------


def test_the_front_chart_shows_each_trial_by_how_it_stands(drawn):
    points = classes(drawn)
    assert points["t0003"] == {"front", "pick"}
    assert points["t0007"] == {"front", "pick"}
    assert "dominated" in points["t0001"]
    assert "stopped" in points["t0004"]
    assert "excluded" in points["t0010"]  # faster and more accurate, but beyond the constraint
    assert "running" in points["t0012"]
    assert "t0002" not in points  # infeasible: nothing was measured


def test_bars_are_said_to_have_the_variation_between_seeds_once_it_is_known(tmp_path):
    events = story()
    before = flat(text_of(tmp_path / "before", events))
    assert "of a validation metric, the sampling error of its samples." in before
    recorder = Recorder()
    recorder.complete("t0001", [0.500, 0.700], 300.0, config())
    recorder.add("again", trial_id="t0001", seed=1, metrics={"val_accuracy": 0.68})
    after = flat(text_of(tmp_path / "after", recorder.events))
    assert "the sampling error of its samples and the variation between seeds." in after


def test_who_cannot_see_a_point_hears_what_it_is(drawn):
    labels = {a["data-t"]: a["aria-label"] for a in drawn.of("a") if "aria-label" in a}
    assert labels["t0007"] == (
        "t0007: val_accuracy 0.7000 ± 0.013, images_per_second 352 ± 4; on the Pareto front, with a probability of 100%"
    )


def test_what_cannot_be_told_apart_from_the_front_is_marked_so(tmp_path):
    recorder = Recorder()
    recorder.complete("t0001", [0.500, 0.700], 300.0, config())
    recorder.complete("t0002", [0.500, 0.699], 299.5, config(256))
    recorder.complete("t0003", [0.200, 0.300], 200.0, config(64))
    text = text_of(tmp_path / "run", recorder.events)
    points = classes(Elements(text))
    assert [sorted(points[f"t000{i}"] & {"front", "tie", "dominated"}) for i in (1, 2, 3)] == [
        ["front"],
        ["tie"],
        ["dominated"],
    ]
    assert "cannot be told apart from t0002" in flat(text)


def test_points_of_the_front_have_bars_in_both_directions(told):
    point = re.search(r'<a href="#t0007" class="front pick".*?</a>', told)[0]
    bars = [dict(re.findall(r'(\w+)="([\d.]+)%"', line)) for line in re.findall(r"<line[^>]*>", point)]
    flat_bars = [bar for bar in bars if bar["y1"] == bar["y2"] and float(bar["x1"]) < float(bar["x2"])]
    upright_bars = [bar for bar in bars if bar["x1"] == bar["x2"] and float(bar["y1"]) > float(bar["y2"])]
    assert len(flat_bars) == len(upright_bars) == 1


def test_bars_below_zero_are_on_the_axis_and_names_of_near_points_have_lines_of_their_own(tmp_path):
    objectives = [{"metric": "val_r2", "goal": "maximize"}, {"metric": "images_per_second", "goal": "maximize"}]
    recorder = Recorder(objectives=objectives, metrics={"val_r2": "", "images_per_second": "images/s"})
    for i, value in enumerate((-2.0, -2.001, -2.2)):
        recorder.start(f"t000{i}", **config(64 * (i + 1)))
        ends = {"val_r2_low": value - 0.3, "val_r2_high": value + 0.3}
        recorder.measure(f"t000{i}", 3, val_r2=value, **ends, **interval(300.0 + i, 1.0))
        recorder.finish(f"t000{i}")
    text = text_of(tmp_path / "run", recorder.events)
    bars = re.findall(r'class="bar" x1="([\d.]+)%" y1="([\d.]+)%" x2="([\d.]+)%" y2="([\d.]+)%"', text)
    heights = [float(y1) - float(y2) for x1, y1, x2, y2 in bars if x1 == x2]
    assert heights
    assert all(0 < height < 100 for height in heights)
    names = text.split('<g class="names"')[1].split("</g>")[0]
    assert sorted(re.findall(r'dy="(-[\d.]+)em"', names)) == ["-0.9", "-0.9", "-2.0"]


def test_three_objectives_are_two_charts_without_an_edge_between_points(tmp_path):
    recorder = Recorder(objectives=[*INFO["objectives"], {"metric": "peak_memory_fraction", "goal": "minimize"}])
    for i in (1, 2, 3):
        recorder.complete(f"t000{i}", [0.1 * i, 0.2 * i], 300.0 - i, config(64 * i))
    text = text_of(tmp_path / "run", recorder.events)
    assert "val_accuracy against peak_memory_fraction" in text
    assert text.count('class="chart front"') == 2
    assert '<g class="steps" aria-hidden="true"></g>' in text


def test_trials_far_away_stand_at_the_edge_and_do_not_flatten_the_front(tmp_path):
    recorder = Recorder()
    for i, accuracy in enumerate([0.91, 0.90, 0.89]):
        recorder.complete(f"t000{i}", [0.1, accuracy], 300.0 + 20 * i, config(64 * (i + 1)))
    recorder.start("t0009", **config(32))
    recorder.measure("t0009", 1, "stop", val_accuracy=0.02, images_per_second=290.0)
    recorder.finish("t0009", "stopped")
    text = text_of(tmp_path / "run", recorder.events)
    front = [float(y) for y in re.findall(r'<a href="#t000[012]" class="front.*?cy="([\d.]+)%"', text)]
    assert len(front) == 3
    assert max(front) - min(front) > 15
    assert "edge" in classes(Elements(text))["t0009"]


def test_curves_are_thinned_but_keep_their_ends(tmp_path, monkeypatch):
    def ends(text):
        section = text.split('id="learning-curves"')[1]
        found = re.findall(r'<path d="M([^"]*)" class="front" data-t="(t\d+)"', section)
        return [(trial, data.count("L"), data.split("L")[0], data.split("L")[-1]) for data, trial in found]

    run = load(write_run(tmp_path / "run", throughput(16).events))
    whole = ends(page(run))
    monkeypatch.setattr(curves, "MAX_POINTS", 16 * 8)
    thin = ends(page(run))
    assert {lines for _, lines, _, _ in whole} == {11}
    assert {lines for _, lines, _, _ in thin} == {7}
    assert [(trial, first, last) for trial, _, first, last in thin] == [(t, first, last) for t, _, first, last in whole]


def test_stage_bars_are_as_long_as_what_they_stand_for(tmp_path):
    recorder = Recorder()
    recorder.start("t0001", **config(100))
    stages = {"load_seconds": 0.001, "forward_seconds": 0.003, "backward_seconds": 0.006}
    recorder.epochs("t0001", [0.4, 0.5], 9000.0, **stages)
    recorder.finish("t0001")
    text = text_of(tmp_path / "run", recorder.events)
    bars = text.split('<ol class="bars">')[1].split("</ol>")[0]
    assert re.findall(r'<rect x="([\d.]+)%" width="([\d.]+)%" height="100%" class="(\w+)">', bars) == [
        ("0", "10", "load"),
        ("10", "30", "forward"),
        ("40", "60", "backward"),
    ]
    assert ">100</span>" in bars  # microseconds: 10 ms for 100 pictures
    assert "Microseconds for an image" in text


def test_an_error_is_no_markup(tmp_path):
    recorder = Recorder()
    recorder.start("t0001", **config())
    recorder.finish("t0001", "failed", "TypeError: Net.__init__() takes *args of <class 'int'>")
    text = text_of(tmp_path / "run", recorder.events)
    assert "Net.__init__() takes *args of <class 'int'>" in flat(text)


def test_the_page_of_a_killed_run_says_unfinished_everywhere(tmp_path):
    recorder = Recorder()
    recorder.start("t0001", **config())
    recorder.measure("t0001", 1, val_accuracy=0.4, **interval(300.0, 3.0))
    told = text_of(tmp_path / "run", recorder.events)
    assert "1 unfinished" in flat(told)
    assert 'data-state="unfinished"' in told
    assert 'value="unfinished"' in told
    body = flat(told.split("<body")[1].split("<script")[0])
    assert not re.search(r"\brunning\b(?! or unfinished)", body)
