"""The script for a GPU, dry: without one it must at least run and agree with the counter."""

from __future__ import annotations

import json

import pytest
import torch

from race.errors import InvalidInput
from real_runs.gpu_check import main


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_dry_run(capsys: pytest.CaptureFixture[str], dtype: str) -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    main(["--device", device, "--model", "nano-s", "--prompts", "2", "--prompt-tokens", "12",
          "--completion-tokens", "10", "--steps", "1", "--dtype", dtype])
    report = json.loads(capsys.readouterr().out)
    assert report["ledger_equals_counter"] is True
    assert report["rollout_tokens_per_second"] > 0
    assert 0 < report["update_mfu"] < 1
    assert report["logprob_mismatch"] < (1e-4 if dtype == "float32" else 0.05)


def test_unknown_shape() -> None:
    with pytest.raises(InvalidInput, match="built-in Qwen2 shape"):
        main(["--model", "gpt-5", "--device", "cpu"])
