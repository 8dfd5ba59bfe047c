#!/usr/bin/env python3
"""Makes tests/golden/hf_tokenizers: a tokenizer.json of each kind, with ids of lines.bin.

    python3 make_hf_tokenizers.py [--out hf_tokenizers] [--only NAME ...]

The script trains small vocabularies. The tokenizers package reads the same tokenizer.json files
and produces the reference ids. README.md describes the files.
"""

import json
import pathlib
import struct
import zlib

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

import golden_common as common
import tokenizer_lines

HERE = pathlib.Path(__file__).resolve().parent
MARK = "\u2581"
SIZE = 900
SPECIALS = ("<unk>", "<s>", "</s>")
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
SPACE_TAIL = r"\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + SPACE_TAIL)
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
ALPHABET = [chr(c) for c in range(33, 127)] + list("éüñßçаеионтслрвкмдупя的一是不了在人有我。，")


def byte_level(regex, ignore_merges, nfc):
    def make(corpus):
        tokenizer = Tokenizer(models.BPE())
        to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        tokenizer.pre_tokenizer = to_bytes
        tokenizer.train_from_iterator(corpus, trainers.BpeTrainer(
            vocab_size=SIZE, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False,
            max_token_length=12))
        tokenizer.model.ignore_merges = ignore_merges
        if nfc:
            tokenizer.normalizer = normalizers.NFC()
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Split(Regex(regex), "isolated"), to_bytes])
        tokenizer.decoder = decoders.ByteLevel()
        tokenizer.add_special_tokens(["<|endoftext|>", "<|im_end|>"])
        tokenizer.add_tokens([AddedToken("<think>", normalized=False)])
        return tokenizer
    return make


def with_edges(make):
    """Adds tokens that match with white space beside them, or only whole words."""
    def make_more(corpus):
        tokenizer = make(corpus)
        tokenizer.add_tokens([
            AddedToken("and", normalized=False, single_word=True),
            AddedToken("that", normalized=False, single_word=True, lstrip=True),
            AddedToken(",", normalized=False, rstrip=True),
            AddedToken("1", normalized=False, lstrip=True),
            AddedToken("\u7684", normalized=False, single_word=True),
            AddedToken("return", normalized=False, single_word=True, rstrip=True),
            AddedToken("<|fold|>", normalized=False, lstrip=True, rstrip=True)])
        return tokenizer
    return make_more


def characters_bpe(corpus, normalizer, pre_tokenizer):
    """Builds a BPE over characters with byte tokens, like a converted SentencePiece model."""
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=False)
    trained.train_from_iterator(corpus, trainers.BpeTrainer(
        vocab_size=SIZE - 300, initial_alphabet=[MARK, *ALPHABET], limit_alphabet=200, show_progress=False,
        max_token_length=8))
    model = json.loads(trained.to_str())["model"]
    tokens = [*SPECIALS, *BYTES, *sorted(model["vocab"], key=model["vocab"].get)]
    vocab = {token: i for i, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab, [tuple(m) for m in model["merges"]], unk_token="<unk>",
                                     fuse_unk=True, byte_fallback=True))
    if normalizer:
        tokenizer.normalizer = normalizer
    if pre_tokenizer:
        tokenizer.pre_tokenizer = pre_tokenizer
    return finish(tokenizer)


def finish(tokenizer):
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in SPECIALS])
    tokenizer.add_tokens([AddedToken("<think>", normalized=False)])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", tokenizer.token_to_id("<s>"))])
    tokenizer.decoder = decoders.Sequence([decoders.Replace(MARK, " "), decoders.ByteFallback(),
                                           decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    return tokenizer


def legacy(corpus):
    return characters_bpe(corpus, normalizers.Sequence(
        [normalizers.Prepend(MARK), normalizers.Replace(" ", MARK)]), None)


def gemma(corpus):
    return characters_bpe(corpus, normalizers.Replace(" ", MARK), pre_tokenizers.Split(" ", "merged_with_previous"))


def metaspace(scheme, split):
    return lambda corpus: characters_bpe(corpus, None,
                                         pre_tokenizers.Metaspace(prepend_scheme=scheme, split=split))


def unigram(byte_fallback, split, normalizer=None):
    def make(corpus):
        trained = Tokenizer(models.Unigram())
        trained.pre_tokenizer = pre_tokenizers.Metaspace()
        trained.train_from_iterator(corpus, trainers.UnigramTrainer(
            vocab_size=SIZE - 300, initial_alphabet=[MARK, *ALPHABET], show_progress=False, max_piece_length=8))
        learned = [piece for piece in json.loads(trained.to_str())["model"]["vocab"]]
        special = [(token, 0.0) for token in (SPECIALS + tuple(BYTES) if byte_fallback else SPECIALS)]
        # Round the scores to float32, as SentencePiece does.
        rounded = [(piece, struct.unpack("<f", struct.pack("<f", score))[0]) for piece, score in learned]
        tokenizer = Tokenizer(models.Unigram(special + rounded, unk_id=0, byte_fallback=byte_fallback))
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=split)
        if normalizer:
            tokenizer.normalizer = normalizer()
        return finish(tokenizer)
    return make


SETS = {
    "llama3": byte_level(LLAMA3, True, False),
    "qwen2": byte_level(QWEN2, False, True),
    "edges": with_edges(byte_level(LLAMA3, True, False)),
    "legacy": legacy,
    "gemma": gemma,
    "metaspace_first": metaspace("first", False),
    "metaspace_split": metaspace("always", True),
    "unigram": unigram(True, True),
    "unigram_nfkc": unigram(False, False, normalizers.NFKC),
}


def comparable(name, line):
    """Returns whether the reference ids of the line are comparable.

    The package's unigram model matches the names of special and byte tokens in text. Tidepool
    deliberately splits them.
    """
    if name == "unigram_nfkc" and any("\U0001fbf0" <= c <= "\U0001fbf9" for c in line):
        return False  # the package's tables lack these Unicode 13 digits
    return not (name.startswith("unigram") and any(token in line for token in ("<0x", *SPECIALS)))


def main():
    parser = common.make_parser(__doc__)
    parser.add_argument("--out", default=HERE / "hf_tokenizers", type=pathlib.Path)
    parser.add_argument("--only", nargs="*", metavar="NAME", help="sets to make; default: all")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    corpus = [line for line in tokenizer_lines.make_corpus()]
    data = (HERE / "tokenizers" / "lines.bin").read_bytes()
    lines, at = [], 0
    while at < len(data):
        size = struct.unpack_from("<H", data, at)[0]
        lines.append(data[at + 2:at + 2 + size])
        at += 2 + size
    golden = {"tokenizers": tokenizers.__version__, "sets": {}}
    if args.only:
        golden = json.loads((args.out / "golden.json").read_text())
    for name, make in SETS.items():
        if args.only and name not in args.only:
            continue
        tokenizer = make(corpus)
        text = json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False, separators=(",", ":"))
        (args.out / f"{name}.json").write_text(text, encoding="utf-8")
        tokenizer = Tokenizer.from_str(text)
        # Encode "<s>" and other special tokens as text, as in a message.
        tokenizer.encode_special_tokens = True
        sums, compared = b"", 0
        for line in lines:
            if not tokenizer_lines.is_utf8(line) or not comparable(name, line.decode()):
                sums += struct.pack("<I", 0)
                continue
            ids = tokenizer.encode(line.decode(), add_special_tokens=False).ids
            sums += struct.pack("<I", zlib.crc32(struct.pack(f"<{len(ids)}i", *ids)))
            compared += 1
        (args.out / f"{name}.crc").write_bytes(sums)
        golden["sets"][name] = {"compared": compared, "tokens": tokenizer.get_vocab_size()}
        print(name, len(text), compared, tokenizer.get_vocab_size())
    common.save_json(args.out / "golden.json", golden)


if __name__ == "__main__":
    main()
