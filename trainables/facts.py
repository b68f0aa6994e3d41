"""Facts of a training that take its code to find out, as one line of JSON, for `search.check`.

    python -m trainables.facts flowers.py [ROOT]

`samples`: numbers by part; `input` and `target`: shapes and types of one sample; `parameters`: weights of the network;
`flops`: of a training step per sample, null where they cannot be counted.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor
from torch.utils._pytree import tree_map

from trainables.build import network
from trainables.contract import Data, DataError, load_trainable
from trainables.machine.exception_chain import described
from trainables.own_trainable import OwnTrainable
from trainables.prediction.flops import training_flops_per_sample
from trainables.workload import workload_of


def facts(trainable: OwnTrainable, data: Data) -> dict[str, Any]:
    """Return the facts by name."""
    import torch

    settings = trainable.settings()
    workload = workload_of(settings)
    shape = workload.sample_shape(settings, data)
    weights = network(settings, shape, torch.device("cpu")).parameters()
    return {
        "samples": workload.training_count(data),
        "input": tree_map(_text, shape.inputs),
        "target": tree_map(_text, shape.targets),
        "units": workload.units_per_sample(data),
        "parameters": sum(weight.numel() for weight in weights),
        "flops": training_flops_per_sample(settings, shape),
    }


def _text(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


def main(arguments: Sequence[str]) -> int:
    """Print the facts; return the exit code: 1 where the user's code raised."""
    path = Path(arguments[0]).absolute()
    try:
        trainable = load_trainable(str(path))
        assert isinstance(trainable, OwnTrainable)
        data = trainable.locate_data(Data(root=arguments[1] if len(arguments) > 1 else None))
        print(json.dumps(facts(trainable, data)), flush=True)
    except (LookupError, DataError) as error:
        print(json.dumps({"error": str(error)}), flush=True)
        return 1
    except (Exception, SystemExit) as error:
        print(json.dumps({"error": described(error, path.parent)}), flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
