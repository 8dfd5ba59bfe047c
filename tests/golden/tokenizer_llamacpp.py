"""The llama.cpp part of make_tokenizers.py: writes vocabulary-only GGUF files and tokenises the
lines with them."""

import tempfile

import gguf
import llama_cpp

import golden_common as common
import tokenizer_lines

# Sets where llama.cpp gives other ids: the largest number of such lines, and the reason. Our ids are the
# reference's.
DIFFERENT = {
    "spm_unused": (5678, "llama.cpp writes unused pieces, a fifth of all; SentencePiece takes them apart again"),
    "tekken": (2295, "its pattern leaves combining marks out of words and knows the case of ASCII alone"),
    "gpt-4o": (2295, "the same"),
    "kimi-k2": (2223, "the same, in code"),
    "deepseek-llm": (6, "it does not count U+1680, U+180E and U+202F as the library does"),
    "deepseek-coder": (7, "the same"),
    "youtu": (103, "its matcher reads the two cases otherwise"),
}
# llama.cpp aborts on these sets: they have a character without a token, and no byte tokens.
UNREADABLE = ("spm_phrases",)


def write(path, fields):
    """Writes a file with only the tokenizer's keys."""
    writer = gguf.GGUFWriter(path, "llama")
    for key, value in fields.items():
        kind = gguf.GGUFValueType.get_type(value)
        inner = None
        if isinstance(value, list):
            inner = {"token_type": gguf.GGUFValueType.INT32, "scores": gguf.GGUFValueType.FLOAT32}.get(
                key.rpartition(".")[2], gguf.GGUFValueType.STRING)
        elif isinstance(value, int) and not isinstance(value, bool):
            kind = gguf.GGUFValueType.UINT32
        writer.add_key_value(key, value, kind, inner)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def write_bpe(path, tokens, merges, controls):
    """Writes byte-level BPE without a rule name. The reader chooses the rule when it opens the
    file."""
    types = [3 if token in controls else 1 for token in tokens]
    write(path, {
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2", "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types, "tokenizer.ggml.merges": [" ".join(pair) for pair in merges],
        "tokenizer.ggml.bos_token_id": tokens.index("<|endoftext|>"),
        "tokenizer.ggml.eos_token_id": tokens.index("<|im_end|>"), "tokenizer.ggml.add_bos_token": False})


def encoder(path, pre, special=False):
    """Line -> ids of llama.cpp, without tokens added at the start."""
    with tempfile.NamedTemporaryFile(suffix=".gguf") as copy:
        fields = {key: value for key, value in common.read_gguf(path)[0].items() if key.startswith("tokenizer.")}
        if pre is not None:
            fields["tokenizer.ggml.pre"] = pre
        write(copy.name, fields)
        model = llama_cpp.Llama(copy.name, vocab_only=True, verbose=False)
    return lambda line: model.tokenize(line.encode(), add_bos=False, special=special)


def check(folder, sets, lines):
    """Returns whether llama.cpp returns the reference's ids, except for the number of lines in
    DIFFERENT."""
    texts = [line.decode() for line in lines if tokenizer_lines.is_utf8(line)]
    good = True
    for one in sets:
        if one.name in UNREADABLE or one.name.endswith("_parse"):
            continue
        most, reason = DIFFERENT.get(one.name, (0, ""))
        theirs, compared, other = encoder(folder / one.vocabulary, one.pre), 0, 0
        for text in texts:
            numbers = one.encode(text)
            if numbers is not None:
                compared += 1
                other += numbers[numbers.index(-1) + 1 if -1 in numbers else 0:] != theirs(text)
        good &= other <= most
        print(f"{one.name:24} llama.cpp gives other ids on {other} of {compared} lines, at most {most} allowed {reason}")
    return good


def check_aliases(path, aliases, lines):
    """Returns whether llama.cpp gives the same ids with every name of a rule. Every third line is
    compared."""
    texts, good = [line.decode() for line in lines[::3] if tokenizer_lines.is_utf8(line)], True
    for pre, names in aliases.items():
        expected = list(map(encoder(path, pre), texts))
        for name in names:
            other = sum(ids != wanted for ids, wanted in zip(map(encoder(path, name), texts), expected))
            good &= other == 0
            print(f"{name:24} llama.cpp returns the ids of {pre} except for {other} of {len(texts)} lines")
    return good
