"""The alphabet as a Hugging Face tokenizer, so that trainers and engines which want one can have it."""

from __future__ import annotations

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from real_runs.nano.alphabet import EOS, TOKEN_OF


def build_tokenizer() -> PreTrainedTokenizerFast:
    """One token per character, ``$`` as EOS and as filling; other characters are dropped, as there is no unknown."""
    core = Tokenizer(models.WordLevel(vocab=TOKEN_OF, unk_token=EOS))
    core.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    core.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=core, eos_token=EOS, pad_token=EOS, padding_side="left",
        clean_up_tokenization_spaces=False,
    )
