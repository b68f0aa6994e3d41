"""Trainable around a user's own training loop: a file with `train(config, trial)`."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from trainables.contract import (
    Config,
    Cost,
    Data,
    DataError,
    InfeasibleError,
    Layout,
    MemoryNeed,
    Metric,
    OwnCodeError,
    Parameter,
    Resources,
    Scalar,
    Strategy,
    Verdict,
    Worker,
)
from trainables.local_worker import LocalWorker, machine
from trainables.metrics import common_metrics, interval_ends
from trainables.own_source import OwnSource, own_errors, own_metrics
from trainables.parallel.layouts import cores_of, most_on_a_node
from trainables.setting_check import checked
from trainables.settings import Settings, parameters_of
from trainables.torch_trainable import isolated, too_few_for

if TYPE_CHECKING:
    from trainables.own_trial import OwnTrial

T = TypeVar("T")
# rows of Settings
PROCESS = ("epochs", "world_size", "placement", "threads", "allocator", "flush_denormals", "trace_steps")
ESTIMATE_SECONDS = 2.0


@dataclass(frozen=True, kw_only=True)
class LoopSettings(Settings):
    """Settings of the processes, and the file's own."""

    own: Mapping[str, Any] = field(default_factory=dict)
    own_rates: Mapping[str, Any] = field(default_factory=dict)  # of these, those that affect rates

    @property
    def loader_processes(self) -> int:
        """Number of loader processes, by the file's `num_workers`; 0: unknown."""
        found = self.own.get("num_workers", 0)
        return found if isinstance(found, int) else 0

    def that_affect_rates(self) -> dict[str, Any]:
        """Return the settings on which measured rates may depend."""
        rates = super().that_affect_rates()
        return {**{name: value for name, value in rates.items() if name in PROCESS}, **self.own_rates}


class OwnLoop:
    """A `contract.Trainable` by the function `train` of a file; optional: `test(config, trial)`."""

    def __init__(self, path: Path) -> None:
        """Read the file's declaration.

        Raises:
            DeclarationError: one line with the mistake, its file and line.
        """
        self._file = OwnSource(path, reserved=PROCESS)
        self.source, declaration = self._file.source, self._file.declaration
        self.own_names = tuple(declaration.parameters)
        rows = parameters_of(Settings, {})
        world_size = Parameter("int", 1, "processes, which train together by torch.distributed", low=1)
        common = {name: world_size if name == "world_size" else rows[name] for name in PROCESS}
        self.PARAMETERS: Mapping[str, Parameter] | None = {**declaration.parameters, **common}
        stages = {"forward_seconds": Metric("s", "per step, all but loading; less if the loop marks stages")}
        own = own_metrics(declaration, tested="test" in declaration.functions)
        self._of_tests = {name for name in own if name.startswith("test_")}
        ends = interval_ends({name: metric for name, metric in own.items() if name.startswith(("val_", "test_"))})
        self.METRICS: Mapping[str, Metric] | None = {**own, **ends, **common_metrics(declaration.unit), **stages}
        self.STRATEGIES: Mapping[str, Strategy] = {}
        self._settings_class: type[LoopSettings] = type("LoopSettings", (LoopSettings,), {"source": self.source.digest})

    def unavailable(self, parameter: str, value: Scalar, resources: Resources) -> str | None:
        """Return why these resources do not allow the value; None: they do."""
        return too_few_for(parameter, value, resources) if parameter in PROCESS else None

    def layout(self, config: Config, resources: Resources) -> Layout:
        """Return one process with everything, or `world_size` processes with equal shares."""
        settings = self._settings(config)
        for name in PROCESS:
            value = getattr(settings, name)
            if value is not None and (reason := self.unavailable(name, value, resources)):
                raise InfeasibleError(f"{name} {value}: {reason}")
        count = settings.world_size or 1
        gpus = resources.node.gpus // most_on_a_node(count, settings, resources)
        placement = settings.placement if count > 1 else "pack"
        return Layout(count, cores_of(count, settings, resources), gpus, placement)

    def locate_data(self, data: Data) -> Data:
        """Return the data with an absolute root.

        Raises:
            DataError: there is no such folder, or the number of samples is limited, which a loop decides itself.
        """
        for name, value, default in (("train", data.train_images, None), ("val", data.val_images, Data.val_images)):
            if value not in (default, 0):
                raise DataError(f"data.{name}_images: {self.source.path.name} has its own loop, which chooses its data")
        return self._file.locate_data(data)

    def describe_data(self, data: Data) -> str:
        """Return where the samples come from."""
        return self._file.describe_data(data)

    def estimate(self, config: Config, data: Data) -> Cost:
        """Run the loop in this process for some seconds.

        Raises:
            InfeasibleError: the loader has no length.
        """
        with tempfile.TemporaryDirectory() as folder:
            worker = LocalWorker(Path(folder), data=data, resources=machine())
            return self._isolated(config, worker, lambda settings: self._cost(settings, worker))

    def train(self, config: Config, worker: Worker) -> None:
        """Call the file's `train`."""

        def work(settings: LoopSettings) -> None:
            from trainables.parallel import ranks

            with contextlib.closing(self._trial(settings, worker)) as trial:
                ranks.meet(worker.world_size)  # the checkpoint is read; rank 0 may write the next one
                if trial.reported_again():
                    self._train(settings, trial)
                    trial.check_finished()

        self._isolated(config, worker, work)

    def probe(self, config: Config, worker: Worker) -> None:
        """Call the file's `train`, and end it after some seconds."""

        def work(settings: LoopSettings) -> None:
            with contextlib.closing(self._trial(settings, worker, probe=True)) as trial:
                self._train_until_end(settings, trial)
                worker.report(trial.probed())

        self._isolated(config, worker, work)

    def turns_alone(self, config: Config, worker: Worker) -> None:
        """Call the file's `train` and report the rates of turns; it has the process to itself, unlike `turns`."""

        def work(settings: LoopSettings) -> None:
            from trainables.own_turns import OwnTurns

            with contextlib.closing(self._trial(settings, worker, probe=True)) as trial:
                trial.turns = OwnTurns(trial, worker, settings.loader_processes)
                self._train_until_end(settings, trial)

        self._isolated(config, worker, work)

    def first_report(self, config: Config, worker: Worker, most_steps: int) -> None:
        """Call the file's `train` for an epoch of the first steps that `trial.steps` gives, and its `test`."""

        def work(settings: LoopSettings) -> None:
            with contextlib.closing(self._trial(settings, worker, most_steps=most_steps)) as trial:
                self._train(settings, trial)
                trial.check_finished()
            if self._of_tests:
                if trial.checkpoint is None:
                    raise OwnCodeError("test needs the network that train reports: trial.report(..., checkpoint=...)")
                self._tested(settings, worker)

        self._isolated(config, worker, work)

    def test(self, config: Config, worker: Worker) -> Mapping[str, float]:
        """Return what the file's `test` measures; nothing without one."""
        if "test" not in self._file.declaration.functions:
            return {}
        return self._isolated(config, worker, lambda settings: self._tested(settings, worker))

    def explain(self, config: Config, metrics: Mapping[str, float], resources: Resources) -> Verdict | None:
        """Find the bottleneck from the stages of a step."""
        from trainables.measure.verdict import bottleneck

        return bottleneck(metrics)

    def memory(self, config: Config, data: Data, resources: Resources) -> MemoryNeed | None:
        """Return None: a loop's memory is not known before it runs."""

    def largest_batch(self, config: Config, data: Data, resources: Resources, available: int) -> int | None:
        """Return None, see `memory`."""

    def _tested(self, settings: LoopSettings, worker: Worker) -> Mapping[str, float]:
        from trainables.own_trial import measured
        from trainables.parallel import ranks

        ranks.meet(worker.world_size)  # rank 0 has written the checkpoint
        trial = self._trial(settings, worker)
        if trial.checkpoint is None:
            raise FileNotFoundError(f"{worker.folder}: no checkpoint to test")
        found = self._file.module().test(dict(settings.own), trial)
        where = f"{self.source.path.name}: test"
        if not isinstance(found, Mapping) or set(found) != self._of_tests:
            names = ", ".join(found) if isinstance(found, Mapping) else type(found).__name__
            raise OwnCodeError(f"{where} returned {names}; expected {', '.join(sorted(self._of_tests))}")
        values, _ = measured(found, where)
        return values

    def _train(self, settings: LoopSettings, trial: OwnTrial) -> None:
        """Call the file's `train`, after seeding the generators of random numbers."""
        import numpy as np

        from trainables.seeding import seed_process

        train, own = self._file.module().train, dict(settings.own)
        seed = own["seed"] if isinstance(own.get("seed"), int) else 0
        if trial.next_epoch > 1:  # else what is drawn in the first epoch would be drawn again
            seed = int(np.random.SeedSequence([abs(seed), trial.next_epoch]).generate_state(1)[0])
        seed_process(seed)
        train(own, trial)

    def _train_until_end(self, settings: LoopSettings, trial: OwnTrial) -> None:
        from trainables.own_trial import ProbeEnd

        with contextlib.suppress(ProbeEnd):
            self._train(settings, trial)

    def _cost(self, settings: LoopSettings, worker: Worker) -> Cost:
        with contextlib.closing(self._trial(settings, worker, probe=True, most_seconds=ESTIMATE_SECONDS)) as trial:
            self._train_until_end(settings, trial)
            return trial.cost()

    def _trial(self, settings: LoopSettings, worker: Worker, probe: bool = False, **limits: Any) -> OwnTrial:
        from trainables.own_trial import OwnTrial

        unit, metrics = self._file.declaration.unit, self._file.declaration.metrics
        return OwnTrial(settings, worker, unit, metrics, probe=probe, **limits)

    def _isolated(self, config: Config, worker: Worker, work: Callable[[LoopSettings], T]) -> T:
        settings = self._settings(config)
        with own_errors(self.source.path.parent):
            self._file.module()  # what it sets at its top level holds for all of its trials
            return isolated(settings, worker, lambda: work(settings))

    def _settings(self, config: Config) -> LoopSettings:
        values = checked(config, self.PARAMETERS or {})
        own = {name: values[name] for name in self.own_names}
        parameters = self._file.declaration.parameters
        rates = {name: value for name, value in own.items() if parameters[name].affects != "trained"}
        process = {name: values[name] for name in PROCESS}
        return self._settings_class(**process, own=own, own_rates=rates)
