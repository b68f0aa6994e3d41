import json

import scale


def test_a_recorded_search_is_replayed_and_goes_on(capsys):
    scale.main(trials=60, proposals=3)
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])["scale"]
    assert (figures["trials"], figures["proposals"]) == (60, 3)
    assert figures["proposal_seconds_worst"] >= figures["proposal_seconds_median"] > 0
    assert 0 < figures["front_points"] <= 63
