"""A run as TensorBoard logs: a folder a trial with its scalars by epoch, and its settings under HParams.

Written with tensorboardX, which Ray brings, as the files are the same as torch's own writer makes: that one would need
TensorBoard where the run is made, and torch, which nothing in `search` imports.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tensorboardX.proto.api_pb2 import DataType, Experiment, HParamInfo, MetricInfo, MetricName, Status
from tensorboardX.proto.event_pb2 import Event
from tensorboardX.proto.plugin_hparams_pb2 import HParamsPluginData, SessionEndInfo, SessionStartInfo
from tensorboardX.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboardX.record_writer import RecordWriter

from search.record.history import Trial
from search.results import Run
from search.text.wording import metric_label

PREFIX = "events.out.tfevents"
STATUS = {"running": "STATUS_RUNNING", "complete": "STATUS_SUCCESS", "stopped": "STATUS_SUCCESS"}


def export(run: Run, folder: Path) -> int:
    """Write the run's trials into the folder, making it if need be; how many there are.

    Called again while the run goes on, it appends what has happened since, and a TensorBoard that has the folder open
    shows it. Under HParams are the settings that the search chose, and the objectives.
    """
    trials = list(run.history.trials.values())
    _append(folder, 0, [_experiment(run)])
    for trial in trials:
        _append(folder / trial.trial_id, trial.started_at, _events(run, trial))
    return len(trials)


def _events(run: Run, trial: Trial) -> Iterator[Event]:
    """What there is to tell of a trial, in an order in which more can only come behind."""
    chosen = {name: trial.config[name] for name in run.history.parameters() if name in trial.config}
    yield _hparams(trial.started_at, "session_start_info", session_start_info=_start(trial, chosen))
    now = trial.started_at
    for epoch, measurement in sorted(trial.curve.items()):
        now = measurement["time"]
        yield _scalars(run, now, epoch, measurement["metrics"])
    if trial.state != "running":
        status = Status.Value(STATUS.get(trial.state, "STATUS_FAILURE"))
        end = SessionEndInfo(status=status, end_time_secs=now)
        yield _hparams(now, "session_end_info", session_end_info=end)
    if trial.tested:
        yield _scalars(run, now, trial.epochs, trial.tested)


def _start(trial: Trial, chosen: Mapping[str, Any]) -> SessionStartInfo:
    info = SessionStartInfo(start_time_secs=trial.started_at, group_name=trial.trial_id)
    for name, value in chosen.items():
        if isinstance(value, bool):
            info.hparams[name].bool_value = value
        elif isinstance(value, int | float):
            info.hparams[name].number_value = value
        else:
            info.hparams[name].string_value = f"{value}"
    return info


def _experiment(run: Run) -> Event:
    """What the columns of HParams are."""
    history = run.history
    columns = []
    for name in history.parameters():
        values = [t.config[name] for t in history.trials.values() if name in t.config]
        kind = "STRING"
        if values and all(isinstance(value, bool) for value in values):
            kind = "BOOL"
        elif values and all(isinstance(value, int | float) for value in values):
            kind = "FLOAT64"
        columns.append(HParamInfo(name=name, type=DataType.Value(f"DATA_TYPE_{kind}")))
    metrics = [
        MetricInfo(name=MetricName(tag=_tag(run, o.metric)), display_name=metric_label(o.metric, run.info["data"]))
        for o in history.objectives
    ]
    experiment = Experiment(
        name=run.name, description=run.info["data"]["description"], hparam_infos=columns, metric_infos=metrics
    )
    return _hparams(run.info["time"], "experiment", experiment=experiment)


def _hparams(time: float, tag: str, **content: Any) -> Event:
    data = SummaryMetadata.PluginData(
        plugin_name="hparams", content=HParamsPluginData(version=0, **content).SerializeToString(deterministic=True)
    )
    value = Summary.Value(tag=f"_hparams_/{tag}", metadata=SummaryMetadata(plugin_data=data))
    return Event(wall_time=time, summary=Summary(value=[value]))


def _scalars(run: Run, time: float, epoch: int, metrics: Mapping[str, float]) -> Event:
    """What was measured; what could not be is left out."""
    values = [
        Summary.Value(tag=_tag(run, metric), simple_value=value)
        for metric, value in metrics.items()
        if math.isfinite(value)
    ]
    return Event(wall_time=time, step=epoch, summary=Summary(value=values))


def _tag(run: Run, metric: str) -> str:
    """In one of two sections, of which TensorBoard shows the objectives first."""
    return f"{'objectives' if metric in {o.metric for o in run.history.objectives} else 'others'}/{metric}"


def _append(folder: Path, started_at: float, events: Iterable[Event]) -> None:
    """Bring a folder's event file up to date: by its end, which a reader sees; where something else changed, anew.

    The name is the trial's start, not the machine's name and the time of writing, as it usually is.
    """
    folder.mkdir(parents=True, exist_ok=True)
    content = _records([Event(wall_time=started_at, file_version="brain.Event:2"), *events])
    there = sorted(folder.glob(f"{PREFIX}.*"))
    if there and content.startswith(before := there[-1].read_bytes()):
        with there[-1].open("ab") as file:
            file.write(content[len(before) :])
        return
    (folder / f"{PREFIX}.{int(started_at):010d}.{len(there)}").write_bytes(content)
    for old in there:
        old.unlink()


class _Memory(RecordWriter):  # type: ignore[misc]
    """A record writer that writes nowhere."""

    def __init__(self) -> None:
        self._writer = io.BytesIO()

    def content(self) -> bytes:
        return self._writer.getvalue()


def _records(events: Iterable[Event]) -> bytes:
    writer = _Memory()
    for event in events:
        writer.write(event.SerializeToString(deterministic=True))  # settings are a map, which has no order
    return writer.content()
