"""Gemma 4's kind of vocabulary for make_tokenizers.py: a list of merges of characters, and byte
tokens.

Hugging Face's tokenizers trains it. The reference is llama.cpp, which defines the form in GGUF. On
lines without a line end, where both split alike, the library is a second reference.
"""

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

import golden_common as common
import tokenizer_llamacpp
from tokenizer_lines import Set, between_broken

NAME = "gemma4"
SIZE = 1700
NEWLINES = tuple("\n" * n for n in range(1, 6))  # no merges make these


def train(folder, corpus):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
    tokenizer.pre_tokenizer = pre_tokenizers.Split("\u2581", "merged_with_next")
    texts = [text.replace("\n", " ") for text in corpus]
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=SIZE, limit_alphabet=900,
                                                             show_progress=False))
    scratch = folder / "gemma4"
    scratch.mkdir(exist_ok=True)
    files = tokenizer.model.save(str(scratch))
    ids, merges = models.BPE.read_file(*files)
    for path in files:
        (scratch / path).unlink()
    scratch.rmdir()
    words = sorted(ids, key=ids.get)
    tokens = ["<pad>", "<eos>", "<bos>", "<unk>", "<custom>", *(f"<0x{b:02X}>" for b in range(256)), *NEWLINES, *words]
    types = [3, 3, 3, 2, 4] + [6] * 256 + [1] * (len(tokens) - 261)
    tokenizer_llamacpp.write(folder / f"{NAME}.gguf", {
        "tokenizer.ggml.model": "gemma4", "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": [" ".join(pair) for pair in merges], "tokenizer.ggml.bos_token_id": 2,
        "tokenizer.ggml.eos_token_id": 1, "tokenizer.ggml.unknown_token_id": 3,
        "tokenizer.ggml.add_bos_token": False})


def _library(folder):
    """Line -> ids of tokenizers, for lines without a line end."""
    fields, _ = common.read_gguf(folder / f"{NAME}.gguf")
    tokens, merges = fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.merges"]
    tokenizer = Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)}, [tuple(m.split(" ", 1)) for m in merges],
                                     unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
    tokenizer.add_tokens(["<custom>"])
    return lambda line: tokenizer.encode(line).ids


def sets(folder):
    """The only set. The script fails if the two references differ on a line."""
    theirs, library = tokenizer_llamacpp.encoder(folder / f"{NAME}.gguf", None), _library(folder)

    def encode(line):
        ids = theirs(line)
        if "\n" not in line and library(line) != ids:
            raise SystemExit(f"{NAME}: llama.cpp and tokenizers differ on {line!r}")
        return ids

    tokens = common.read_gguf(folder / f"{NAME}.gguf")[0]["tokenizer.ggml.tokens"]
    byte_ids = [tokens.index(f"<0x{byte:02X}>") for byte in range(256)]
    yield Set(NAME, f"{NAME}.gguf", None, encode, between_broken(encode, byte_ids))
