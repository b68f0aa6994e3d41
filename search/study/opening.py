"""First lines of a run's journal: what is searched, and what earlier runs knew."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from search.exit_codes import InputError
from search.record import warm_start
from search.record.defaults import stated_defaults
from search.record.events import Opening, parse
from search.record.source import recorded_name
from search.space.space import Space
from trainables.contract import Data, source_of


def description(space: Space, data: Data, results: Path) -> dict[str, Any]:
    """Return the journal fields that describe a space and its data."""
    trainable, source = space.loaded_trainable, source_of(space.trainable or "")
    name = recorded_name(space.trainable or "", results)
    mapping = {**space.to_mapping(), "trainable": name}
    if not data.val_images:  # all validation samples, of a number that is not known
        del mapping["data"]["val_images"]
    return {
        "space": mapping,
        "defaults": stated_defaults(trainable),
        "trainable": name,
        "source": source.digest if source else "",
        "objectives": [asdict(objective) for objective in space.objectives],
        "constraints": [str(constraint) for constraint in space.stated_constraints],
        "budget": space.budget.model_dump(),
        "grid_points": space.grid_points,
        "num_configs": int(space.num_configs) if math.isfinite(space.num_configs) else None,
        "metrics": {name: metric.unit for name, metric in space.known_metrics.items()},
        "data": {"name": data.name, "description": trainable.describe_data(data)},
        "seed": space.searcher.seed,
    }


def known_measurements(
    space: Space, fields: dict[str, Any], results: Path, asked_for: Sequence[Path]
) -> list[dict[str, Any]]:
    """Return measurements of the requested earlier runs, and rates of the newest runs beside the new one."""
    opening = parse(json.dumps({"event": "run", "time": 0.0, "name": "", **fields}).encode())
    assert isinstance(opening, Opening)
    known = warm_start.recent_rates(space, opening, results, other_than=asked_for)
    asked = warm_start.all_measurements(space, opening, asked_for)
    if asked_for and not asked:
        folders = ", ".join(map(str, asked_for))
        raise InputError(f"--warm-start {folders}: nothing there is of use here: other data, length or fixed settings")
    return [*asked, *known]
