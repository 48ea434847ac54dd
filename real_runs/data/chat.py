"""Chat messages to prompt tokens, and the tokenizer's own special tokens checked once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from race.errors import InvalidInput
from real_runs.data.rows import Message, Row

# What the instruct models of the default ladder were themselves trained to follow.
INSTRUCTION = "Please reason step by step, and put your final answer within \\boxed{}."


@dataclass(frozen=True)
class Chat:
    """Renders prompts with one tokenizer.

    Attributes
    ----------
    tokenizer
        A transformers tokenizer.
    instruction
        Added to prompts that do not say how to answer; ``None`` adds nothing.
    system
        A system message put first where the data has none.
    template_options
        Passed on to the chat template (``enable_thinking`` of Qwen3, for example).
    notes
        What was decided for lack of something, in plain words.
    """

    tokenizer: Any
    eos_id: int
    pad_id: int
    instruction: str | None
    system: str | None
    template_options: Mapping[str, Any]
    notes: tuple[str, ...]

    @classmethod
    def of(
        cls,
        tokenizer: Any,
        *,
        instruction: str | None = INSTRUCTION,
        system: str | None = None,
        template_options: Mapping[str, Any] | None = None,
    ) -> Chat:
        """Check the tokenizer and settle its pad token.

        Raises
        ------
        InvalidInput
            The tokenizer has no end-of-text token, so that no completion could ever end.
        """
        notes = []
        eos, pad = tokenizer.eos_token_id, tokenizer.pad_token_id
        if eos is None:
            raise InvalidInput(
                "tokenizer: it has no eos token, so no completion can end; set tokenizer.eos_token to the token that "
                "ends an answer"
            )
        if pad is None:
            pad = eos
            notes.append(f"the tokenizer has no pad token; eos (id {eos}) is used, and lengths tell them apart")
        if not getattr(tokenizer, "chat_template", None):
            notes.append("the tokenizer has no chat template; messages are joined as plain text")
        return cls(tokenizer, int(eos), int(pad), instruction, system, dict(template_options or {}), tuple(notes))

    def render(self, row: Row) -> str:
        """The prompt as text, ready for a completion."""
        messages = self._messages(row)
        if getattr(self.tokenizer, "chat_template", None):
            text: str = self.tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=True, **self.template_options
            )
            return text
        return "\n\n".join(m["content"] for m in messages) + "\n\n"

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of rendered prompts; a template writes its own special tokens, plain text gets the tokenizer's."""
        special = not getattr(self.tokenizer, "chat_template", None)
        ids: list[list[int]] = self.tokenizer(list(texts), add_special_tokens=special)["input_ids"]
        # A tokenizer that ends every text with eos would have the prompt end before the answer begins.
        return [x[:-1] if special and x and x[-1] == self.eos_id else x for x in ids]

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of sampled tokens, special tokens dropped."""
        text: str = self.tokenizer.decode(list(token_ids), skip_special_tokens=True)
        return text

    def _messages(self, row: Row) -> list[Message]:
        messages = list(row.messages)
        if self.instruction and not row.complete:
            last = messages[-1]
            messages[-1] = {"role": last["role"], "content": f"{last['content']}\n\n{self.instruction}"}
        if self.system and messages[0]["role"] != "system":
            messages.insert(0, {"role": "system", "content": self.system})
        return messages
