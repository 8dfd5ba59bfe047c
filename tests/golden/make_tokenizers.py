#!/usr/bin/env python3
"""Makes tests/golden/tokenizers: small vocabularies, 11,000 lines, and the ids of reference
implementations.

    python3 make_tokenizers.py [--out tokenizers] [--check]

The references are the sentencepiece library for SentencePiece vocabularies and Hugging Face's
tokenizers for the others; both train them first, on the lines themselves. With --check nothing is
written: the committed lines and vocabularies are tokenised again, by the references and by
llama.cpp, and compared with the committed sums. README.md describes the files and where the
references differ among themselves.
"""

import json
import pathlib
import struct
import sys
import zlib

import golden_common as common
import tokenizer_bpe
import tokenizer_gemma4
import tokenizer_lines
import tokenizer_llamacpp
import tokenizer_model
import tokenizer_spm

HERE = pathlib.Path(__file__).resolve().parent
EXAMPLE_EVERY = 260  # one line of this number has its ids in the file
PACKAGES = ("numpy", "tokenizers", "gguf", "llama-cpp-python", "sentencepiece")


def write_lines(path, lines):
    """Writes the size of each line as a little-endian uint16, then its bytes."""
    path.write_bytes(b"".join(struct.pack("<H", len(line)) + line for line in lines))


def read_lines(path):
    data, lines, at = path.read_bytes(), [], 0
    while at < len(data):
        size = struct.unpack_from("<H", data, at)[0]
        lines.append(data[at + 2 : at + 2 + size])
        at += 2 + size
    return lines


def checksum(numbers):
    """CRC-32 of the numbers as little-endian int32."""
    return zlib.crc32(struct.pack(f"<{len(numbers)}i", *numbers))


def sums_of(golden, lines):
    """(uint32 sums as bytes, {line index: numbers}) of one set. The sum is 0 for a line without
    comparison, because the reference returns None."""
    sums, examples = [], {}
    for index, line in enumerate(lines):
        numbers = golden.numbers(line)
        if numbers is None:
            sums.append(0)
            continue
        sums.append(checksum(numbers))
        if index % EXAMPLE_EVERY == 0 and tokenizer_lines.is_utf8(line):
            examples[str(index)] = numbers
    return struct.pack(f"<{len(sums)}I", *sums), examples


def sets(folder):
    """Returns every tokenizer_lines.Set."""
    yield from tokenizer_spm.sets(folder)
    yield from tokenizer_gemma4.sets(folder)
    yield from tokenizer_bpe.sets(folder)


def check(out):
    lines, good = read_lines(out / "lines.bin"), True
    golden = json.loads((out / "golden.json").read_text(encoding="utf-8"))
    for one in sets(out):
        same = sums_of(one, lines)[0] == (out / f"{one.name}.crc").read_bytes()
        good &= same and one.name in golden["sets"]
        print(f"{one.name:24} {'as committed' if same else 'DIFFERENT from the committed sums'}")
    good &= tokenizer_llamacpp.check(out, sets(out), lines)
    return tokenizer_llamacpp.check_aliases(out / tokenizer_bpe.VOCABULARY, tokenizer_bpe.ALIASES, lines) and good


def main():
    parser = common.make_parser(__doc__)
    parser.add_argument("--out", default=HERE / "tokenizers", type=pathlib.Path)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    if args.check:
        sys.exit(0 if check(args.out) else 1)
    args.out.mkdir(parents=True, exist_ok=True)
    lines = tokenizer_lines.make_lines()
    write_lines(args.out / "lines.bin", lines)
    corpus = tokenizer_lines.make_corpus()
    tokenizer_spm.train(args.out, corpus)
    tokenizer_bpe.train(args.out, corpus)
    tokenizer_gemma4.train(args.out, corpus)
    tokenizer_model.write(args.out)
    described = {}
    for one in sets(args.out):
        sums, examples = sums_of(one, lines)
        (args.out / f"{one.name}.crc").write_bytes(sums)
        described[one.name] = {"vocabulary": one.vocabulary, "pre": one.pre, "parse": one.name.endswith("_parse"),
                               "lossless": one.name != "spm_phrases", "examples": examples}
        print(one.name)
    common.save_json(args.out / "golden.json", {
        "versions": common.versions(PACKAGES), "lines": len(lines), "aliases": tokenizer_bpe.ALIASES,
        "sets": described})


if __name__ == "__main__":
    main()
