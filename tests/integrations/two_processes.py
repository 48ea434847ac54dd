"""One rank of a training under torchrun: writes what its own counter saw and what the callback says of all ranks."""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import torch
from trl_callback import Case, build_trainer, counted

from race.integrations.trl import ComputeCallback


def main(folder: Path, budget: str) -> None:
    torch.set_num_threads(1)
    callback = ComputeCallback(budget or None, attention="full", count="executed", store=folder / "store")
    case = Case("two", scorer=True, config={"beta": 0.04, "max_steps": 12 if budget else 2, "num_iterations": 2,
                                            "per_device_train_batch_size": 8, "max_completion_length": 20})  # fmt: skip
    trainer = build_trainer(case, folder / "out", [callback])
    with counted(trainer) as truth:
        trainer.train()
    found = {
        "counter": truth.to_dict()["total"],
        "callback": callback.spent.total,
        "steps": trainer.state.global_step,
        "record": None if callback.record is None else callback.record.to_dict(),
    }
    (folder / f"rank{trainer.args.process_index}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
