"""A run as TensorBoard logs: one folder per trial with its scalars by epoch, and the settings under HParams.

Written with tensorboardX, which Ray installs anyway. torch's own writer would need TensorBoard where the run is made.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tensorboardX import SummaryWriter
from tensorboardX.proto.api_pb2 import Status
from tensorboardX.proto.plugin_hparams_pb2 import HParamsPluginData, SessionEndInfo
from tensorboardX.summary import hparams

from search.record.dataframes import Run

PREFIX = "events.out.tfevents"
STATUS = {"complete": "STATUS_SUCCESS", "stopped": "STATUS_SUCCESS"}


def export(run: Run, folder: Path) -> int:
    """Write the run's trials into the folder, which is made if it is missing; return the number of trials.

    A later export adds what has happened since, and a TensorBoard that has the folder open shows it. HParams has the
    settings that the search chose and the objectives.
    """
    trials = list(run.state.trials.values())
    columns = {}
    for name in run.state.parameters():
        values = [trial.config[name] for trial in trials if name in trial.config]
        columns[name] = next((v for v in values if isinstance(v, str)), values[0] if values else "")
    _append(run, folder, [{"columns": columns, "time": run.info.time}])
    for trial in trials:  # what a later export adds is always last
        chosen = {name: trial.config[name] for name in run.state.parameters() if name in trial.config}
        events: list[dict[str, Any]] = [{"config": chosen, "time": trial.started_at}]
        events += [{"epoch": n, "metrics": each.metrics, "time": each.time} for n, each in sorted(trial.curve.items())]
        now = events[-1]["time"]
        if trial.state != "running":
            events.append({"state": trial.state, "time": now})
        if trial.test_metrics:
            events.append({"epoch": trial.epochs, "metrics": trial.test_metrics, "time": now})
        _append(run, folder / trial.trial_id, events)
    return len(trials)


def _append(run: Run, folder: Path, events: Sequence[dict[str, Any]]) -> None:
    """Write the events that the folder does not have into a new file; all of them if earlier ones have changed.

    A file's name has its time, by which TensorBoard orders files, and the number and the digest of the events so far.
    tensorboardX would put the name of this machine into it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    exported = max(folder.glob(f"{PREFIX}.*"), default=None)
    count, digest = exported.name.split(".")[-2:] if exported else ("0", _digest([]))
    changed = _digest(events[: int(count)]) != digest
    new = events if changed else events[int(count) :]
    if not new:
        return
    with tempfile.TemporaryDirectory() as elsewhere:  # a folder inside `folder` would be a run of its own
        # from a purge step on, TensorBoard forgets what it read from earlier files
        with SummaryWriter(elsewhere, purge_step=0 if changed else None) as writer:
            for event in new:
                _write(run, event, writer)
        (made,) = Path(elsewhere).iterdir()
        shutil.copyfile(made, partial := folder / "partial")
    partial.replace(folder / f"{PREFIX}.{time.time_ns()}.{len(events)}.{_digest(events)}")


def _write(run: Run, event: dict[str, Any], writer: SummaryWriter) -> None:
    now, objectives = event["time"], {o.metric for o in run.state.objectives}
    match event:
        case {"columns": columns}:
            experiment, *_ = hparams(columns, dict.fromkeys(f"objectives/{o.metric}" for o in run.state.objectives))
            writer.file_writer.add_summary(experiment, walltime=now)
        case {"config": config}:
            _, start, _ = hparams(config, {})
            writer.file_writer.add_summary(start, walltime=now)
        case {"epoch": epoch, "metrics": metrics}:
            for name, value in metrics.items():
                if math.isfinite(value):
                    tag = f"{'objectives' if name in objectives else 'others'}/{name}"  # TensorBoard sorts the sections
                    writer.add_scalar(tag, value, epoch, walltime=now, display_name=run.state.label(name))
        case {"state": state}:
            status = Status.Value(STATUS.get(state, "STATUS_FAILURE"))  # the library itself knows success only
            data = HParamsPluginData(version=0, session_end_info=SessionEndInfo(status=status, end_time_secs=now))
            *_, end = hparams({}, {})
            end.value[0].metadata.plugin_data.content = data.SerializeToString()
            writer.file_writer.add_summary(end, walltime=now)


def _digest(events: Sequence[dict[str, Any]]) -> str:
    return hashlib.sha256(json.dumps(events, sort_keys=True).encode()).hexdigest()[:16]
