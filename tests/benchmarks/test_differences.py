import json

import differences
import pytest
from command_line import parse_settings

from trainables import turns

TINY = ["width=0.01", "batch_size=24", "conv_kernel=library"]


@pytest.mark.slow
def test_a_known_difference_is_measured_and_held_against_a_longer_reference(monkeypatch, capsys):
    monkeypatch.setattr(turns, "TURN_SECONDS", 0.05)
    words = [*TINY, "--tries", "1", "--seconds", "2", "--reference", "2", "--slower-by", "0", "0.3"]
    monkeypatch.setattr("sys.argv", ["differences.py", *words])
    differences.main()
    found = json.loads(capsys.readouterr().out.splitlines()[-1])["differences"]
    assert list(found) == ["0", "0.3"]
    assert found["0.3"]["half_interval"] > 0
    short, _ = differences._try(differences.USUAL | parse_settings(TINY), 0.3, 2.0, 0.0)
    assert short.mean > 0.1
