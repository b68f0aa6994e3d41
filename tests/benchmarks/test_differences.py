import json

import differences
import pytest
from command_line import parse_settings

from trainables import turns

TINY = ["width=0.01", "batch_size=24", "conv_kernel=library"]


@pytest.mark.slow
def test_a_known_difference_is_measured_and_held_against_a_longer_reference(monkeypatch, capsys):
    monkeypatch.setattr(turns, "TURN_SECONDS", 0.05)
    monkeypatch.setattr(differences, "SUCCESSIVE_TRIES", 3)
    monkeypatch.setattr(differences, "PROBED_TRIES", 1)
    words = [*TINY, "--tries", "1", "--seconds", "1", "--slower-by", "0", "0.3"]
    monkeypatch.setattr("sys.argv", ["differences.py", *words])
    differences.main()
    found = json.loads(capsys.readouterr().out.splitlines()[-1])["differences"]
    assert list(found) == ["0", "0.3"]
    assert found["0.3"]["half_interval"] > 0
    assert (found["0"]["tries"], found["0.3"]["tries"]) == (1, 3)
    tries = list(differences._tries(differences.USUAL | parse_settings(TINY), 0.3, 1.0))
    assert [estimate.mean > 0.1 and truth > 0.1 for estimate, truth in tries] == [True] * 3
