"""Process reward models through vLLM, which knows Qwen2.5-Math-PRM's architecture itself.

The engine returns class probabilities at every position and we pick the scored ones, exactly as in torch: its own
step pooling would look for one fixed token id, whatever the tokenizer says.
"""

from __future__ import annotations

import os
from typing import Any

from race.errors import CannotDo
from race.flops import Architecture
from real_runs.prm.formats import Encoded, StepFormat
from real_runs.prm.scorer import StepPrm


class VllmPrm(StepPrm):
    """Scores through a vLLM pooling engine in this machine.

    Parameters
    ----------
    path
        Checkpoint folder or hub id, of the step-separator layout.
    device
        ``cpu`` or a CUDA device.
    memory
        Share of the GPU's memory, or GiB of cache on a CPU.

    Raises
    ------
    CannotDo
        vLLM is not installed (the message names the extra), or the engine does not start.
    """

    def __init__(
        self,
        name: str,
        path: str,
        step_format: StepFormat,
        architecture: Architecture,
        *,
        max_tokens: int,
        dtype: str,
        device: str,
        memory: float,
    ) -> None:
        super().__init__(name, step_format, architecture, max_tokens=max_tokens)
        try:
            from vllm import LLM
            from vllm.config import PoolerConfig
        except ImportError as error:
            raise CannotDo(
                f"engine: vllm cannot be imported ({error}); install it with: pip install 'race-rl[vllm]', or use "
                "engine = torch"
            ) from None
        cpu = device == "cpu"
        options: dict[str, Any] = {"enforce_eager": True} if cpu else {"gpu_memory_utilization": min(memory, 0.95)}
        if cpu:
            os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", str(max(1, round(memory))))
        try:
            self._engine: Any = LLM(
                model=path,
                runner="pooling",
                dtype=dtype,
                max_model_len=max_tokens,
                pooler_config=PoolerConfig(tok_pooling_type="ALL", use_activation=True),
                disable_log_stats=True,
                **options,
            )
        except (RuntimeError, ValueError, OSError) as error:
            first = (str(error).strip().splitlines() or [type(error).__name__])[0][:160]
            raise CannotDo(f"engine: vLLM cannot serve {path!r} ({first}); use engine = torch") from None

    def _probabilities(self, encoded: dict[int, Encoded]) -> dict[int, tuple[float, ...]]:
        prompts = [{"prompt_token_ids": list(e.ids)} for e in encoded.values()]
        outputs = self._engine.encode(prompts, pooling_task="token_classify", use_tqdm=False) if prompts else []
        found = {}
        for (k, e), output in zip(encoded.items(), outputs, strict=True):
            table = output.outputs.data
            if tuple(table.shape) != (len(e.ids), 2):
                raise CannotDo(
                    f"prm: vLLM returned shape {tuple(table.shape)} for {len(e.ids)} tokens; expected two classes "
                    "at each"
                )
            # Half-precision softmax can leave [0, 1] by a rounding error.
            found[k] = tuple(min(max(float(table[p, 1]), 0.0), 1.0) for p in e.positions)
        return found
