"""A run in a real terminal of 80x24, watched by tmux from start to end."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

WATCH = Path(__file__).parents[2] / "docs" / "terminal" / "watch.py"
SPACE = """
trainable: replay
evaluation: decoupled
objectives:
  - {metric: val_accuracy, goal: maximize}
  - {metric: images_per_second, goal: maximize, probed: true}
parameters:
  batch_size: {values: [64, 128, 256, 512]}
  learning_rate: {min: 0.001, max: 0.5, log: true, affects: trained}
  number_with_a_long_name: {values: [0, 1, 2], affects: probed}
fixed: {seconds_per_epoch: 1.5}
budget: {trials: 3, epochs: 2}
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("tmux") is None, reason="no tmux here: apt-get install tmux")
def test_a_run_watched_from_start_to_end_says_what_goes_on_and_no_line_is_cut_off_or_broken(tmp_path: Path) -> None:
    (tmp_path / "space.yaml").write_text(SPACE)
    files = ["--text", "screens.txt", "--picture", "screen.svg"]
    run = [sys.executable, "-m", "search.run", "space.yaml", "--name", "run"]
    watch = subprocess.Popen([sys.executable, str(WATCH), *files, "--", *run], cwd=tmp_path)
    try:
        assert watch.wait(timeout=280) == 0
    finally:
        watch.kill()
        subprocess.run(["tmux", "-L", f"watched-{watch.pid}", "kill-server"], capture_output=True)  # where it is left
        watch.wait()
    screens = re.split(r"^── \d+ s ─+\n", (tmp_path / "screens.txt").read_text(), flags=re.MULTILINE)[1:]
    said = "\n".join(screens)
    stages = ["starting Ray", "time left: known after the first epoch", "epoch 1/2", "front of 1 point"]
    stages.append("Pareto front: ")  # what is above it may have left the screen by then
    places = [said.find(stage) for stage in stages]
    assert -1 not in places
    assert places == sorted(places)
    assert re.search(r"◆ p\d{4}  probing|  p\d{4} probed", said)
    assert "Commands and conditions: results/run/summary.md" in screens[-1]
    lines = [line for screen in screens for line in screen.splitlines()]
    assert max(map(len, lines)) <= 80
    assert [line for line in lines if "…" in line] == []
    picture = (tmp_path / "screen.svg").read_text()
    assert "val_accuracy" in picture
    assert "@font-face" not in picture
