"""Writes a model folder that a Dynamo mocker can serve: `make_model.py FOLDER`.

Run by the component's own Python, which has the tokenizer library. No weights: a tokenizer that is
trained here on the standard library's source, and the few files that describe an 8B model. The
vocabulary has to be larger than about 2,000: below that, the mocker's random ids decode to nothing.
"""

from __future__ import annotations

import json
import sys
import sysconfig
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

VOCABULARY = 4000
FILES = 60


def main(folder: Path) -> None:
    folder.mkdir(parents=True)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=["<s>", "</s>"],
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    texts = sorted(str(path) for path in Path(sysconfig.get_path("stdlib")).glob("*.py"))[:FILES]
    tokenizer.train(texts, trainer)
    if tokenizer.get_vocab_size() != VOCABULARY:
        sys.exit(f"the vocabulary has {tokenizer.get_vocab_size()} entries")
    tokenizer.save(str(folder / "tokenizer.json"))
    special = {"bos_token_id": 0, "eos_token_id": 1}
    _write(
        folder / "tokenizer_config.json",
        tokenizer_class="PreTrainedTokenizerFast",
        bos_token="<s>",
        eos_token="</s>",
        model_max_length=32768,
        chat_template="{% for m in messages %}{{ m['content'] }}\n{% endfor %}",
    )
    _write(folder / "generation_config.json", **special)
    _write(
        folder / "config.json",
        architectures=["LlamaForCausalLM"],
        model_type="llama",
        hidden_size=4096,
        intermediate_size=14336,
        num_hidden_layers=32,
        num_attention_heads=32,
        num_key_value_heads=8,
        head_dim=128,
        vocab_size=VOCABULARY,
        max_position_embeddings=32768,
        rms_norm_eps=1e-5,
        rope_theta=500000.0,
        torch_dtype="bfloat16",
        tie_word_embeddings=False,
        **special,
    )


def _write(path: Path, **content: object) -> None:
    path.write_text(json.dumps(content, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
