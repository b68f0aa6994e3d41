"""Space files with one problem each, and the expected message. The line with the problem ends in `# <-`."""

from __future__ import annotations

import re
from typing import NamedTuple

MARK = "# <-"

# Sections that a body does not have itself are taken from here and precede it.
GOOD = {
    "trainable": "trainable: vgg19_cifar10\n",
    "objectives": """\
objectives:
  - {metric: val_accuracy, goal: maximize}
  - {metric: images_per_second, goal: maximize}
""",
    "budget": "budget: {trials: 8}\n",
    "parameters": "parameters: {batch_size: {values: [64, 128]}}\n",
}


PROBED = """\
objectives:
  - {metric: images_per_second, goal: maximize}
  - {metric: peak_memory_gib, goal: minimize}
"""


class Bad(NamedTuple):
    name: str
    key: str
    message: str
    body: str
    without: str = ""

    @property
    def text(self) -> str:
        said = [name for name in GOOD if re.search(rf"^{name}:", self.body, re.MULTILINE)]
        return "".join(text for name, text in GOOD.items() if name not in (*said, *self.without.split())) + self.body

    @property
    def line(self) -> int:
        lines = self.text.splitlines()
        return next((number for number, line in enumerate(lines, start=1) if line.endswith(MARK)), 1)


BAD_SPACES = [
    # what is likely
    Bad(
        "likely without two ends",
        "parameters.learning_rate.likely",
        'found "0.1"; expected two numbers, as in 0.01 to 0.1',
        'parameters:\n  learning_rate: {min: 0.01, max: 1, likely: "0.1"}  # <-\n',
    ),
    Bad(
        "likely outside of the range",
        "parameters.learning_rate.likely",
        "found 0.001 to 0.1; expected a part of 0.01 to 1",
        "parameters:\n  learning_rate: {min: 0.01, max: 1, likely: 0.001 to 0.1}  # <-\n",
    ),
    Bad(
        "likely not among the values",
        "parameters.batch_size.likely",
        "32 is not among the values",
        "parameters:\n  batch_size: {values: [64, 128], likely: [64, 32]}  # <-\n",
    ),
    Bad(
        "likely for another searcher",
        "parameters.batch_size.likely",
        "only the searcher gp uses it; leave it out",
        "searcher: {name: tpe}\nparameters:\n  batch_size: {values: [64, 128], likely: 64}  # <-\n",
    ),
    # keys
    Bad("section", "paramters", 'unknown key "paramters"; did you mean "parameters"?', "paramters: {}  # <-\n"),
    Bad("section like none", "xyz", 'unknown key "xyz"; there are trainable, evaluation,', "xyz: 1  # <-\n"),
    Bad(
        "constraint on the test set",
        "constraints[0]",
        "test_accuracy is measured once, after the search; bound a val_ metric instead",
        'constraints: ["test_accuracy >= 0.9"]  # <-\n',
    ),
    Bad(
        "list without brackets",
        "parameters.batch_size",
        "found 64 without a name; a list is in brackets",
        """\
parameters:
  batch_size: {values: 32, 64}  # <-
""",
    ),
    Bad("data key", "data.nme", 'unknown key "nme"; did you mean "name"?', "data:\n  nme: folder  # <-\n"),
    Bad("searcher key", "searcher.sed", 'unknown key "sed"; did you mean "seed"?', "searcher: {sed: 1}  # <-\n"),
    Bad("budget key", "budget.trails", 'did you mean "trials"?', "budget:\n  hours: 1\n  trails: 9  # <-\n"),
    Bad("stopping key", "stopping.nam", 'did you mean "name"?', "stopping: {nam: none}  # <-\n"),
    Bad(
        "stopping rule",
        "stopping.name",
        'found "halving"; there are auto, none, forecast',
        "stopping: {name: halving}  # <-\n",
    ),
    Bad(
        "objective key",
        "objectives[1].gaol",
        'unknown key "gaol"; did you mean "goal"?',
        "objectives:\n  - {metric: val_accuracy, goal: maximize}\n  - {metric: val_loss, gaol: minimize}  # <-\n",
    ),
    Bad(
        "choice key",
        "parameters.batch_size.vlaues",
        'unknown key "vlaues"; did you mean "values"?',
        "parameters:\n  batch_size: {vlaues: [64]}  # <-\n",
    ),
    Bad(
        "range key",
        "parameters.learning_rate.upper",
        'unknown key "upper"; there are min, max, log, type, likely, when',
        "parameters:\n  learning_rate:\n    min: 0.1\n    upper: 0.2  # <-\n",
    ),
    Bad("no parameters", "parameters", "missing; expected {NAME: {values: [...]}, ...}", "", without="parameters"),
    Bad("no objectives", "objectives", "missing; expected [{metric: ", "", without="objectives"),
    Bad(
        "no goal",
        "objectives[0].goal",
        "missing; expected maximize or minimize",
        "objectives:\n  - metric: val_accuracy  # <-\n  - {metric: val_loss, goal: minimize}\n",
    ),
    Bad(
        "no max",
        "parameters.learning_rate.max",
        "missing; expected a number",
        "parameters:\n  learning_rate: {min: 0.1}  # <-\n",
    ),
    # types
    Bad("text for a count", "budget.trials", 'found "12"; expected a whole number', 'budget: {trials: "12"}  # <-\n'),
    Bad("truth for a count", "budget.trials", "found true; expected a whole number", "budget: {trials: true}  # <-\n"),
    Bad("part of a trial", "budget.trials", "found 1.5; expected a whole number", "budget: {trials: 1.5}  # <-\n"),
    Bad("no trials", "budget.trials", "found 0; expected at least 1", "budget: {trials: 0}  # <-\n"),
    Bad("no hours", "budget.hours", "found 0; expected more than 0", "budget:\n  hours: 0  # <-\n"),
    Bad("endless hours", "budget.hours", "found inf; expected a finite number", "budget: {hours: .inf}  # <-\n"),
    Bad("no epochs", "budget.epochs", "found 0; expected at least 1", "budget: {trials: 8, epochs: 0}  # <-\n"),
    Bad("seed below 0", "searcher.seed", "found -1; expected at least 0", "searcher: {seed: -1}  # <-\n"),
    Bad("seed too long", "searcher.seed", "expected less than 4294967296", "searcher: {seed: 4294967296}  # <-\n"),
    Bad("a word in YAML 1.2", "data.download", 'found "off"; expected true or false', "data: {download: off}  # <-\n"),
    Bad("number for a folder", "data.root", "found 7; expected a string", "data: {root: 7}  # <-\n"),
    Bad("section empty", "data", "found nothing; expected a mapping of name, root,", "data:  # <-\n"),
    Bad("section a word", "searcher", 'found "tpe"; expected a mapping of name, seed', "searcher: tpe  # <-\n"),
    Bad("section a list", "fixed", "found a list; expected a mapping", "fixed: [seed]  # <-\n"),
    Bad("parameters a list", "parameters", "found a list; expected a mapping", "parameters: [seed]  # <-\n"),
    Bad("objectives a mapping", "objectives", "found a mapping; expected a list", "objectives: {val_loss: 1}  # <-\n"),
    Bad("objective a word", "objectives[0]", "expected a mapping of metric, goal", "objectives:\n  - val_loss  # <-\n"),
    Bad(
        "bare list",
        "parameters.batch_size",
        "found a list; expected {values: [...]} or {min: ..., max: ...}; one value alone belongs under fixed",
        "parameters:\n  batch_size: [64, 128]  # <-\n",
    ),
    Bad("bare value", "parameters.seed", "found 3; expected {values: [...]}", "parameters:\n  seed: 3  # <-\n"),
    Bad(
        "values one value",
        "parameters.seed.values",
        "found 3; expected a list",
        "parameters:\n  seed: {values: 3}  # <-\n",
    ),
    Bad(
        "value a list",
        "parameters.seed.values[1]",
        "found a list; expected a finite number, a string, true or false",
        "parameters:\n  seed:\n    values:\n      - 1\n      - [2, 3]  # <-\n",
    ),
    Bad(
        "value nothing",
        "fixed.threads",
        "found nothing; expected a finite number, a string",
        "fixed: {threads: null}  # <-\n",
    ),
    Bad(
        "value not a number", "fixed.momentum", "found nan; expected a finite number", "fixed: {momentum: .nan}  # <-\n"
    ),
    Bad(
        "end a word",
        "parameters.learning_rate.min",
        'found "low"; expected a finite number',
        "parameters:\n  learning_rate: {min: low, max: 1}  # <-\n",
    ),
    Bad(
        "log a number",
        "parameters.learning_rate.log",
        "found 10; expected true or false",
        "parameters:\n  learning_rate: {min: 0.1, max: 1, log: 10}  # <-\n",
    ),
    # parameters in themselves
    Bad(
        "no values",
        "parameters.seed.values",
        "an empty list; give at least",
        "parameters:\n  seed: {values: []}  # <-\n",
    ),
    Bad(
        "value twice",
        "parameters.batch_size.values[2]",
        "64 is listed twice; values must differ",
        "parameters:\n  batch_size: {values: [64, 128, 64]}  # <-\n",
    ),
    Bad(
        "empty range",
        "parameters.learning_rate",
        "an empty range: min 0.5 is not below max 0.5",
        "parameters:\n  learning_rate: {min: 0.5, max: 0.5}  # <-\n",
    ),
    Bad(
        "log over zero",
        "parameters.weight_decay.min",
        "found 0; a log range starts above 0",
        "parameters:\n  weight_decay:\n    min: 0  # <-\n    max: 0.1\n    log: true\n",
    ),
    Bad(
        "int range with a broken end",
        "parameters.batch_size.max",
        "found 64.5; the ends of an int range are whole numbers",
        "parameters:\n  batch_size: {min: 32, max: 64.5, type: int}  # <-\n",
    ),
    Bad(
        "values and range",
        "parameters.batch_size",
        "found a mapping; expected values, or else min and max, not both",
        "parameters:\n  batch_size: {values: [64], min: 1}  # <-\n",
    ),
    Bad("nothing to search", "parameters", "nothing to search; name at least one", "parameters: {}  # <-\n"),
    Bad(
        "searched and fixed",
        "fixed.batch_size",
        "batch_size is searched under parameters too; keep one of the two",
        "fixed: {batch_size: 64}  # <-\n",
    ),
    # conditions
    Bad(
        "when on nothing",
        "parameters.num_workers.when.loadr",
        'no parameter "loadr" here; did you mean "loader"?',
        "parameters:\n  loader: {values: [workers, memory]}\n"
        "  num_workers: {values: [0, 2], when: {loadr: workers}}  # <-\n",
    ),
    Bad(
        "when on itself",
        "parameters.num_workers.when.num_workers",
        "num_workers depends on itself; name another parameter",
        "parameters:\n  num_workers: {values: [0, 2], when: {num_workers: 0}}  # <-\n",
    ),
    Bad(
        "when in a cycle",
        "parameters.loader.when",
        "loader and num_workers depend on each other",
        "parameters:\n  loader: {values: [workers, memory], when: {num_workers: 0}}  # <-\n"
        "  num_workers: {values: [0, 2], when: {loader: workers}}\n",
    ),
    Bad(
        "when a value that is not offered",
        "parameters.num_workers.when.loader",
        'loader is never "worker"; did you mean "workers"?',
        "parameters:\n  loader: {values: [workers, memory]}\n"
        "  num_workers:\n    values: [0, 2]\n    when:\n      loader: [memory, worker]  # <-\n",
    ),
    Bad(
        "when a value beyond the range",
        "parameters.seed.when.batch_size",
        "batch_size is never 7; it goes from 8 to 64",
        "parameters:\n  batch_size: {min: 8, max: 64, type: int}\n  seed: {values: [1], when: {batch_size: 7}}  # <-\n",
    ),
    Bad(
        "when a value of a range",
        "parameters.seed.when.momentum",
        "momentum is a range, which hardly ever has one value; give momentum a list of values",
        "parameters:\n  momentum: {min: 0.5, max: 0.9}\n  seed: {values: [1, 2], when: {momentum: 0.6}}  # <-\n",
    ),
    Bad(
        "when of no value",
        "parameters.seed.when.loader",
        "an empty list; give at least one value",
        "parameters:\n  loader: {values: [workers, memory]}\n  seed: {values: [1, 2], when: {loader: []}}  # <-\n",
    ),
    Bad(
        "when a word",
        "parameters.seed.when",
        'found "workers"; expected a mapping',
        "parameters:\n  seed: {values: [1, 2], when: workers}  # <-\n",
    ),
    # parameters of the trainable
    Bad(
        "trainable",
        "trainable",
        'found "vgg19": no such trainable; did you mean "vgg19_cifar10"?',
        "trainable: vgg19  # <-\n",
    ),
    Bad("another module", "trainable", 'found "os.path": no such trainable; there', "trainable: os.path  # <-\n"),
    *(
        Bad(f"trainable {name}", "trainable", f'found "{name}": no such trainable; there', f"trainable: {name}  # <-\n")
        for name in (".", "..", ".foo")
    ),
    Bad(
        "file of nobody",
        "trainable",
        'found "~nobody-here/x.py": no such file; there are',
        "trainable: ~nobody-here/x.py  # <-\n",
    ),
    Bad("no file", "trainable", 'found "x.py": no such file; there are vgg19_cifar10,', "trainable: x.py  # <-\n"),
    Bad(
        "parameter",
        "parameters.lrr",
        'vgg19_cifar10 has no "lrr"; did you mean "learning_rate"?',
        "parameters:\n  batch_size: {values: [64]}\n  lrr: {min: 0.1, max: 0.2}  # <-\n",
    ),
    Bad("setting", "fixed.momentun", 'has no "momentun"; did you mean "momentum"?', "fixed: {momentun: 0.9}  # <-\n"),
    Bad(
        "text for a number",
        "parameters.batch_size.values[1]",
        'found "128"; expected a whole number',
        'parameters:\n  batch_size: {values: [64, "128"]}  # <-\n',
    ),
    Bad("truth for a number", "fixed.momentum", "found true; expected a number", "fixed: {momentum: true}  # <-\n"),
    Bad("word for truth", "fixed.pin_memory", 'found "on"; expected true or false', "fixed: {pin_memory: on}  # <-\n"),
    Bad(
        "no such choice",
        "parameters.precision.values[1]",
        'found "bf61"; did you mean "bf16"?',
        "parameters:\n  precision:\n    values:\n      - fp32\n      - bf61  # <-\n",
    ),
    Bad("fixed choice", "fixed.optimizer", 'found "adam"; did you mean "adamw"?', "fixed: {optimizer: adam}  # <-\n"),
    Bad(
        "value out of bounds",
        "parameters.batch_size.values[0]",
        "found 0; expected at least 1",
        "parameters:\n  batch_size: {values: [0, 64]}  # <-\n",
    ),
    Bad(
        "range out of bounds",
        "parameters.batch_size.min",
        "found 0; expected at least 1",
        "parameters:\n  batch_size: {min: 0, max: 64}  # <-\n",
    ),
    Bad(
        "range over words",
        "parameters.precision",
        "a range is not possible here; give values among auto, fp32, bf16, fp16",
        "parameters:\n  precision: {min: 16, max: 32}  # <-\n",
    ),
    Bad(
        "broken range over whole numbers",
        "parameters.batch_size.type",
        'found "float"; expected int, as batch_size is a whole number',
        "parameters:\n  batch_size: {min: 1, max: 64, type: float}  # <-\n",
    ),
    Bad(
        "metric",
        "objectives[1].metric",
        'vgg19_cifar10 reports no "image_per_second"; did you mean "images_per_second"?',
        "objectives:\n  - {metric: val_accuracy, goal: maximize}\n"
        "  - {metric: image_per_second, goal: maximize}  # <-\n",
    ),
    Bad(
        "searching by the test set",
        "objectives[0].metric",
        "test_accuracy is measured once, after the search; optimize a val_ metric",
        "objectives:\n  - {metric: test_accuracy, goal: maximize}  # <-\n  - {metric: val_loss, goal: minimize}\n",
    ),
    Bad(
        "constraint on nothing",
        "constraints[0]",
        'reports no "peak_memory"; did you mean "peak_memory_gib"?',
        "constraints:\n  - peak_memory <= 8  # <-\n",
    ),
    # probes
    Bad("evaluation", "evaluation", 'found "decopled"; did you mean "decoupled"?', "evaluation: decopled  # <-\n"),
    Bad(
        "objective that takes training",
        "objectives[0].metric",
        "a probe does not measure val_accuracy; leave it out, or set evaluation: coupled",
        "evaluation: probe\nobjectives:\n  - {metric: val_accuracy, goal: maximize}  # <-\n"
        "  - {metric: images_per_second, goal: maximize}\n",
    ),
    Bad(
        "constraint that takes training",
        "constraints[0]",
        "a probe does not measure val_loss",
        f"evaluation: probe\n{PROBED}constraints:\n  - val_loss <= 3  # <-\n",
    ),
    Bad(
        "probes stopped early",
        "stopping.name",
        'found "forecast"; probes have no epochs; leave it out',
        f"evaluation: probe\n{PROBED}stopping:\n  name: forecast  # <-\n",
    ),
    Bad(
        "probes by epochs",
        "budget.total_epochs",
        "found 30; probes have no epochs; leave it out",
        f"evaluation: probe\n{PROBED}budget:\n  total_epochs: 30  # <-\n",
    ),
    # objectives, constraints, budget
    Bad(
        "one objective",
        "objectives",
        "found 1; a front needs two objectives or more",
        "objectives:  # <-\n  - {metric: val_accuracy, goal: maximize}\n",
    ),
    Bad(
        "objective twice",
        "objectives[1].metric",
        "val_loss is listed twice; objectives must differ",
        "objectives:\n  - {metric: val_loss, goal: minimize}\n  - {metric: val_loss, goal: minimize}  # <-\n",
    ),
    Bad(
        "objective in the wrong direction",
        "objectives[1].goal",
        "found maximize; vgg19_cifar10 says of val_loss: minimize",
        "objectives:\n  - {metric: val_accuracy, goal: maximize}\n  - {metric: val_loss, goal: maximize}  # <-\n",
    ),
    Bad(
        "goal",
        "objectives[0].goal",
        'found "maximise"; did you mean "maximize"?',
        "objectives:\n  - {metric: val_accuracy, goal: maximise}  # <-\n  - {metric: val_loss, goal: minimize}\n",
    ),
    Bad(
        "constraint without a bound",
        "constraints[0]",
        'found "val_loss < 3"; expected "METRIC <= NUMBER", "METRIC >= NUMBER" or "METRIC >= NUMBER * ba',
        "constraints: [val_loss < 3]  # <-\n",
    ),
    Bad(
        "constraint in parts of no baseline",
        "constraints[0]",
        "there is no baseline; give one",
        "constraints: [val_loss <= 1.1 * baseline]  # <-\n",
    ),
    Bad(
        "incomplete baseline",
        "baseline",
        "learning_rate is missing; a baseline sets every searched parameter",
        "baseline: {batch_size: 128}  # <-\nparameters:\n  batch_size: {values: [64, 128]}\n"
        "  learning_rate: {min: 0.1, max: 0.2}\n",
    ),
    Bad(
        "misspelt parameter that the baseline has right",
        "parameters.lerning_rate",
        'no "lerning_rate"; did you mean "learning_rate"?',
        "baseline: {learning_rate: 0.1}\nparameters:\n  lerning_rate: {values: [0.1, 0.2]}  # <-\n",
    ),
    Bad(
        "baseline outside the searched values",
        "baseline.batch_size",
        "100 is outside the searched values",
        "baseline:\n  batch_size: 100  # <-\nparameters:\n  batch_size: {values: [64, 128]}\n",
    ),
    Bad(
        "baseline with a parameter that is not searched",
        "baseline.loader",
        "loader is not searched; leave it out",
        "baseline:\n  batch_size: 64\n  loader: memory  # <-\nparameters:\n  batch_size: {values: [64, 128]}\n",
    ),
    Bad(
        "baseline with an inactive parameter",
        "baseline.num_workers",
        "num_workers is inactive in the baseline; leave it out",
        "baseline:\n  loader: memory\n  num_workers: 2  # <-\nparameters:\n  loader: {values: [memory, workers]}\n"
        "  num_workers: {values: [0, 2], when: {loader: workers}}\n",
    ),
    Bad(
        "baseline with a broken number",
        "baseline.batch_size",
        "found 32.5; expected a whole number",
        "baseline:\n  batch_size: 32.5  # <-\nparameters:\n  batch_size: {min: 16, max: 128}\n",
    ),
    Bad(
        "baseline with truth for a number",
        "baseline.learning_rate",
        "found true; expected a number",
        "baseline:\n  learning_rate: true  # <-\nparameters:\n  learning_rate: {min: 0.1, max: 1}\n",
    ),
    Bad("constraint a mapping", "constraints[0]", "found a mapping; expected ", "constraints: [{val_loss: 3}]  # <-\n"),
    Bad("searcher", "searcher.name", 'found "nsga"; did you mean "nsga2"?', "searcher: {name: nsga}  # <-\n"),
    Bad("stopping", "stopping.name", 'found "forcast"; did you mean "forecast"?', "stopping: {name: forcast}  # <-\n"),
    Bad("data", "data.name", 'found "cifar"; did you mean "cifar10"?', "data: {name: cifar}  # <-\n"),
    Bad("no pictures", "data.train_images", "found 0; expected at least 1", "data: {train_images: 0}  # <-\n"),
    Bad(
        "no end",
        "budget",
        "the search would never end; set trials, hours, gpu_hours or total_epochs",
        "budget: {epochs: 3}  # <-\n",
    ),
    Bad(
        "less than one trial",
        "budget.total_epochs",
        "found 5; one trial alone has 12",
        "budget:\n  epochs: 12\n  total_epochs: 5  # <-\n",
    ),
    Bad(
        "more hours than anyone has",
        "budget.hours",
        "found 1e+300; expected at most 1,000,000",
        "budget:\n  hours: 1e300  # <-\n",
    ),
    Bad(
        "too many at a time",
        "concurrent_trials",
        "found 1000; expected at most 100",
        "concurrent_trials: 1000  # <-\n",
    ),
    Bad(
        "grid over a range",
        "searcher.name",
        "a grid needs values, and momentum is a range; give values, or use tpe",
        "parameters:\n  momentum: {min: 0.5, max: 0.9}\nsearcher: {name: grid}  # <-\n",
    ),
    # settings for machines without a GPU
    Bad(
        "section of the overlay",
        "without_gpu.dat",
        'unknown key "dat"; did you mean "data"?',
        "without_gpu:\n  dat: {name: folder}  # <-\n",
    ),
    Bad(
        "value in the overlay",
        "without_gpu.fixed.width",
        'found "small"; expected a number',
        "without_gpu:\n  budget: {epochs: 1}\n  fixed: {width: small}  # <-\n",
    ),
    Bad(
        "overlay that does not fit",
        "without_gpu.parameters.loader.when.momentum",
        'no parameter "momentum" here',
        "without_gpu:\n  parameters:\n    loader: {values: [memory], when: {momentum: 1}}  # <-\n",
    ),
    Bad(
        "overlay that searches and fixes",
        "without_gpu.fixed.seed",
        "seed is searched under parameters too; keep one of the two",
        "without_gpu:\n  parameters:\n    seed: {values: [1, 2]}\n  fixed:\n    seed: 1  # <-\n",
    ),
    Bad(
        "overlay in itself",
        "without_gpu.without_gpu",
        "cannot contain itself; leave it out",
        "without_gpu:\n  without_gpu: {}  # <-\n",
    ),
    Bad("overlay a word", "without_gpu", 'found "cpu"; expected a mapping', "without_gpu: cpu  # <-\n"),
    # YAML itself
    Bad("key twice", "", 'not valid YAML: found duplicate key "data"', "data: {}\ndata: {name: auto}  # <-\n"),
    Bad("tab", "", "not valid YAML: found character '\\t'", "data:\n\tname: auto  # <-\n"),
    Bad(
        "bracket left open", "", "not valid YAML: expected ',' or ']'", "constraints: [val_loss <= 3\ndata: {}  # <-\n"
    ),
    Bad("two documents", "", "not valid YAML: but found another document", "---  # <-\ndata: {}\n"),
    Bad("unknown alias", "", "not valid YAML: found undefined alias", "data: *theirs  # <-\n"),
    Bad(
        "object", "data", "found the tag tag:yaml.org,2002:python/object:os.x;", "data: !!python/object:os.x {}  # <-\n"
    ),
    Bad("date", "fixed.seed", "found a date; in quotes it would be a string", "fixed: {seed: 2026-01-01}  # <-\n"),
    Bad("key a number", "fixed", 'the key 1 is not a string; write "1"', "fixed:\n  seed: 1\n  1: 2  # <-\n"),
    Bad("key null", "", 'the key null is not a string; write "null"', "null: 2  # <-\n"),
    Bad("control character", "", "not valid YAML: special characters are not allowed", "data: {name: \x01}  # <-\n"),
    Bad("empty", "", "found nothing; a space file is a mapping", "", without=" ".join(GOOD)),
    Bad("list", "", "found a list; a space file is a mapping", "- 1\n", without=" ".join(GOOD)),
    Bad("word", "", 'found "parameters"; a space file is a mapping', "parameters\n", without=" ".join(GOOD)),
    # affected metrics, early stopping
    Bad(
        "affects a probe",
        "parameters.loader.affects",
        'found "probe"; did you mean "probed"?',
        "parameters:\n  loader: {values: [workers, memory], affects: probe}  # <-\n",
    ),
    Bad(
        "range affects nothing",
        "parameters.momentum.affects",
        'found "none"; there are all, probed, trained',
        "parameters:\n  momentum:\n    min: 0.5\n    max: 0.9\n    affects: none  # <-\n",
    ),
    Bad(
        "probed a word",
        "objectives[1].probed",
        'found "often"; expected true or false',
        "objectives:\n  - {metric: val_accuracy, goal: maximize}\n"
        "  - {metric: images_per_second, goal: maximize, probed: often}  # <-\n",
    ),
    Bad(
        "a number of epochs in all for probes",
        "budget.total_epochs",
        "probes have no epochs: the search would never end; set trials, hours or gpu_hours",
        f"evaluation: probe\n{PROBED}budget:\n  total_epochs: 1  # <-\n",
    ),
    Bad(
        "an empty list of lengths",
        "parameters.epochs.values",
        "an empty list; give at least one value",
        "parameters:\n  epochs: {values: []}  # <-\n",
    ),
    Bad(
        "a log range whose ends are too far apart",
        "parameters.weight_decay",
        "a range too large to be searched; give its ends by nearer numbers",
        "parameters:\n  weight_decay: {min: 1.0e-300, max: 1.0e+10, log: true}  # <-\n",
    ),
    Bad(
        "constraints that exclude each other",
        "constraints[1]",
        "val_accuracy cannot be 0.9 or more and 0.1 or less",
        'constraints:\n  - "val_accuracy >= 0.9"\n  - "val_accuracy <= 0.1"  # <-\n',
    ),
    Bad(
        "a metric by its last word",
        "objectives[0].metric",
        'vgg19_cifar10 reports no "accuracy"; did you mean "val_accuracy"?',
        "objectives:\n  - {metric: accuracy, goal: maximize}  # <-\n  - {metric: images_per_second, goal: maximize}\n",
    ),
    Bad(
        "a mistake beside a range of whole numbers",
        "budget.hour",
        'unknown key "hour"; did you mean "hours"?',
        "parameters:\n  num_workers: {min: 0, max: 4}\nbudget:\n  trials: 4\n  hour: 1  # <-\n",
    ),
    Bad("searcher of others", "searcher.name", 'found "bohb"; there are gp, tpe,', "searcher: {name: bohb}  # <-\n"),
    Bad(
        "probes by forecast",
        "stopping.name",
        'found "forecast"; probes have no epochs; leave it out',
        f"evaluation: probe\n{PROBED}stopping: {{name: forecast}}  # <-\n",
    ),
]
