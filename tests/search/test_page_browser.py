"""The page as people meet it: in a real browser, at a desk and on a phone, by pointer and by keys."""

from __future__ import annotations

import contextlib
import re
import shutil
import time
from collections.abc import Iterator

import psutil
import pytest

from search.page.page import write_page
from search.results import load
from search.runs.index_page import write_index
from search.runs.listed_run import list_runs
from tests.search.page_runs import empty, scaling, throughput
from tests.search.runs import story, write_run

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="no Chromium on the PATH (Debian: apt-get install chromium)"),
]
api = pytest.importorskip("playwright.sync_api", reason="no playwright (pip install -e .[dev])")

SIZES = {"desk": {"width": 1280, "height": 900}, "phone": {"width": 390, "height": 844}}


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    with api.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])  # CI runs as root
        yield opened
        opened.close()


@pytest.fixture
def opened(browser, tmp_path):
    """Opens a run's page and watches it: `opened(recorder)` -> the page, with `.said` and `.asked_for`."""
    contexts = []

    def open_page(events, size="desk", running=False, **options):
        path = write_page(load(write_run(tmp_path / "run", events)), time.time() if running else None)
        context = browser.new_context(viewport=SIZES[size], **options)
        contexts.append(context)
        page = context.new_page()
        page.said, page.asked_for = [], []
        page.on("console", lambda message: page.said.append(message.text))
        page.on("pageerror", lambda error: page.said.append(str(error)))
        page.on("request", lambda request: page.asked_for.append(request.url))
        page.path = path
        page.goto(path.as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()


@pytest.mark.parametrize("size", SIZES)
def test_the_list_of_runs_filters_sorts_and_leads_to_the_reports(browser, tmp_path, size):
    write_page(load(write_run(tmp_path / "cifar", story())))
    for number in (1, 2):
        write_run(tmp_path / f"h200-{number}", throughput(trials=8 * number).events)
    index = tmp_path / "index.html"
    write_index(list_runs(tmp_path), index)
    page = browser.new_context(viewport=SIZES[size]).new_page()
    said = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(index.as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") == SIZES[size]["width"]
    rows = "[...document.querySelectorAll('#runs tbody tr:not([hidden])')].map((row) => row.cells[0].textContent)"
    page.locator("#runs th", has_text="complete").locator("button").click()
    assert page.evaluate(rows) == ["h200-2", "cifar", "h200-1"]
    page.fill("#words", "H200 ended")
    assert page.evaluate(rows) == ["h200-2", "h200-1"]
    assert page.text_content("#shown") == "2 of 3"
    page.fill("#words", "")
    page.get_by_role("link", name="cifar").click()
    assert "report.html" in page.url
    assert said == []


def shown_trials(page):
    return page.evaluate("[...document.querySelectorAll('#all-trials tbody tr:not([hidden])')].map((row) => row.id)")


def title(page):
    return page.locator("#trial h3").inner_text().split()[0]


RUNS = {"throughput": throughput, "scaling": scaling, "empty": empty}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", RUNS)
def test_it_opens_without_an_error_a_request_or_a_sideways_scroll(opened, name, size):
    page = opened(RUNS[name]().events, size)
    assert page.evaluate("document.documentElement.scrollWidth") == SIZES[size]["width"]
    assert page.said == []
    assert page.asked_for == [page.path.as_uri()]
    assert page.locator(".answer .lead").is_visible()


def test_the_front_can_be_seen_in_the_first_screens(opened):
    page = opened(throughput().events)
    front = page.locator(".chart.front a.front .dot")
    assert front.count() >= 3
    boxes = [dot.bounding_box() for dot in front.all()]
    assert all(box["width"] >= 10 for box in boxes)
    chart = page.locator(".chart.front > svg").bounding_box()
    assert all(chart["x"] <= box["x"] <= chart["x"] + chart["width"] for box in boxes)
    assert page.locator(".chart.front .names text").all_inner_texts() != []


def test_pointing_at_a_trial_shows_it_and_a_click_keeps_it(opened):
    page = opened(story())
    assert title(page) == "t0007"  # what the page recommends
    dot = page.locator('.chart.front a[data-t="t0011"] .dot')
    dot.scroll_into_view_if_needed()
    box = dot.bounding_box()
    page.mouse.move(box["x"] + 25, box["y"] - 5)  # near is enough
    assert title(page) == "t0011"
    assert "401 ± 4" in page.locator("#trial dl").inner_text().replace("\n", " ")
    assert page.locator('#all-trials tr[id="t0011"]').get_attribute("class").split() == ["front", "hot"]
    page.mouse.click(box["x"] + 5, box["y"] + 5)
    page.mouse.move(5, 5)
    assert title(page) == "t0011"
    page.keyboard.press("Escape")
    assert "Point at a trial" in page.locator("#trial").inner_text()


def test_keys_reach_every_point_and_the_tables(opened):
    page = opened(story())
    page.locator("#pareto-front summary").focus()
    page.keyboard.press("Tab")
    begun = page.evaluate("document.activeElement.dataset.t")
    page.keyboard.press("ArrowRight")
    beside = page.evaluate("document.activeElement.dataset.t")
    assert begun != beside
    assert title(page) == beside
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")  # out of the chart at once, not through all its points
    assert page.evaluate("document.activeElement.closest('.chart')") is None
    assert title(page) == beside
    assert page.locator(".scroll[tabindex='0']").count() == page.locator(".scroll").count() >= 3


def test_filters_leave_out_of_all_charts_and_the_table_what_they_say(opened):
    page = opened(story())
    page.locator("#pareto-front summary").first.click()
    for state in ("stopped", "infeasible", "failed", "running"):
        page.locator(f'#filter input[data-setting="state"][value="{state}"]').uncheck()
    page.locator('#filter input[data-setting="batch_size"][value="64"]').uncheck()
    assert shown_trials(page) == ["t0007", "t0011", "t0006", "t0010"]
    assert page.locator("#shown").inner_text() == "4 of 12 trials"
    assert "out" in page.locator('.chart.front a[data-t="t0003"]').get_attribute("class")
    page.locator('#filter input[data-setting="learning_rate"][data-end="least"]').fill("0.1")
    assert shown_trials(page) == ["t0011", "t0010"]
    page.locator('#filter button[type="reset"]').click()
    api.expect(page.locator("#shown")).to_have_text("12 trials")
    page.locator('#filter input[type="search"]').fill("memory t0009")
    assert shown_trials(page) == ["t0009"]


def brush(page, name, share):
    """Drag from the top of an axis down over this share of it; where a later click on it would be."""
    axis = page.locator(".upright", has_text=name)
    axis.scroll_into_view_if_needed()
    grip = axis.locator(".grip").bounding_box()
    middle = grip["x"] + grip["width"] / 2
    page.mouse.move(middle, grip["y"] + 1)
    page.mouse.down()
    page.mouse.move(middle, grip["y"] + grip["height"] * share, steps=4)
    page.mouse.up()
    return middle, grip["y"] + 100


def test_dragging_along_an_axis_keeps_what_crosses_it_there(opened):
    page = opened(story())
    place = brush(page, "images_per_second", 0.15)
    assert shown_trials(page) == ["t0011", "t0010"]  # of 401 and 402 images per second
    page.mouse.click(*place)
    assert len(shown_trials(page)) == 12


def test_the_table_sorts_by_what_is_pressed_and_back(opened):
    page = opened(story())
    rate = page.locator("#all-trials th", has_text="images_per_second")
    rate.locator("button").click()
    assert shown_trials(page)[:3] == ["t0010", "t0011", "t0012"]
    assert rate.get_attribute("aria-sort") == "descending"
    rate.locator("button").click()
    assert shown_trials(page)[0] == "t0003"
    assert set(shown_trials(page)[-3:]) == {"t0002", "t0008", "t0009"}  # not measured: last either way


def test_a_command_is_copied_whole(opened):
    page = opened(story(), permissions=["clipboard-read", "clipboard-write"])
    card = page.locator(".card").first
    card.locator("summary", has_text="YAML").click()
    card.locator("details[open]", has_text="YAML").locator("button.copy").click()
    card.locator("button.copy", has_text="Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()").count("learning_rate: ") == 1


def test_the_page_of_a_running_run_reloads_itself_and_stays_as_it_was_left(opened):
    events = throughput(finished=False).events
    page = opened(events[:-40], running=True)
    page.locator("#pareto-front summary").first.click()
    page.locator('#filter input[type="search"]').fill("device")
    page.locator('#filter input[type="search"]').blur()
    page.locator("#all-trials th", has_text="images_per_second").locator("button").click()
    brush(page, "images_per_second", 0.5)
    page.locator('.chart.front a[data-t="t0031"]').focus()
    page.evaluate("scrollTo(0, 700)")
    before = page.locator("#all-trials tbody tr").count()
    write_page(load(write_run(page.path.parent, events)), time.time())
    api.expect(page.locator("#all-trials tbody tr")).not_to_have_count(before, timeout=20_000)
    assert page.locator('#filter input[type="search"]').input_value() == "device"
    assert page.locator("#all-trials th", has_text="images_per_second").get_attribute("aria-sort") == "descending"
    assert page.evaluate("[...brushes.values()].length") == 1
    assert page.evaluate("document.activeElement.dataset.t") == "t0031"
    assert page.evaluate("scrollY") == 700
    assert page.said == []
    page.locator("#pause").click()
    page.wait_for_timeout(11_000)
    assert int(re.search(r"loaded (\d+) s ago", page.locator("#age").inner_text())[1]) >= 11  # while it is paused


def test_without_scripts_it_can_be_read_and_points_lead_to_rows(opened):
    page = opened(story(), java_script_enabled=False)
    assert page.locator('.chart.front a[data-t="t0007"] .dot').is_visible()
    assert page.locator('#all-trials tr[id="t0002"]').is_visible()
    assert not page.locator("#trial").is_visible()
    assert not page.locator(".filter").is_visible()
    page.locator('.chart.front a[data-t="t0007"]').focus()
    page.keyboard.press("Enter")
    assert page.url.endswith("#t0007")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_stand_out_from_what_is_behind_them(opened, scheme):
    """The contrast that WCAG asks for of text: 4.5 to 1."""
    page = opened(story(), color_scheme=scheme)
    for words in ("ink", "soft", "accent"):
        for ground in ("paper", "panel"):
            light, dark = sorted((luminance(page, words), luminance(page, ground)), reverse=True)
            assert (light + 0.05) / (dark + 0.05) >= 4.5, f"{words} on {ground}"


def luminance(page, name):
    """Of one of the style's colours, as WCAG defines it."""
    page.evaluate(f"document.body.style.color = 'var(--{name})'")
    channels = re.findall(r"[\d.]+", page.evaluate("getComputedStyle(document.body).color"))
    parts = [int(channel) / 255 for channel in channels[:3]]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def renderers():
    """Seconds of CPU by the browser's processes that draw pages, by process id, without those that have just ended."""
    seconds = {}
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # a zombie's command line is gone, too: ZombieProcess is one
            if "--type=renderer" in child.cmdline():
                seconds[child.pid] = child.cpu_times().user + child.cpu_times().system
    return seconds


def test_a_thousand_trials_open_in_a_second_or_two(opened):
    """In the browser's own seconds, which others on the machine hardly lengthen: 1.0 to 1.2 when it was written."""
    before = renderers()
    page = opened(throughput(1000, epochs=50).events)
    page.evaluate("new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))")
    assert max(seconds - before.get(pid, 0.0) for pid, seconds in renderers().items()) < 3.0
    assert page.said == []
