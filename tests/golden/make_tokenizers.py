#!/usr/bin/env python3
"""Makes tests/golden/tokenizers: small vocabularies, 10,400 lines, and the ids that references give.

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
EXAMPLES = 40  # lines of each set whose ids are written out


def write_lines(path, lines):
    """Each line as a little-endian uint16 of its size, and its bytes."""
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


def sums_of(encode, lines):
    """(uint32 sums as bytes, {line index: numbers}): 0 for a line that is not to be compared, because
    it is not UTF-8 or the encoder says None."""
    sums, examples = [], {}
    for index, line in enumerate(lines):
        numbers = encode(line.decode()) if tokenizer_lines.is_utf8(line) else None
        if numbers is None:
            sums.append(0)
            continue
        sums.append(checksum(numbers))
        if index % (len(lines) // EXAMPLES) == 0:
            examples[str(index)] = numbers
    return struct.pack(f"<{len(sums)}I", *sums), examples


def sets(folder):
    """Every set as (name, vocabulary file, tokenizer.ggml.pre or None, line -> numbers)."""
    yield from tokenizer_spm.sets(folder)
    yield from tokenizer_gemma4.sets(folder)
    yield from tokenizer_bpe.sets(folder)


def check(out):
    lines, good = read_lines(out / "lines.bin"), True
    golden = json.loads((out / "golden.json").read_text(encoding="utf-8"))
    for name, _, _, encode in sets(out):
        same = sums_of(encode, lines)[0] == (out / f"{name}.crc").read_bytes()
        good &= same and name in golden["sets"]
        print(f"{name:24} {'as committed' if same else 'DIFFERENT from the committed sums'}")
    return tokenizer_llamacpp.check(out, sets(out), lines) and good


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
    for name, vocabulary, pre, encode in sets(args.out):
        sums, examples = sums_of(encode, lines)
        (args.out / f"{name}.crc").write_bytes(sums)
        described[name] = {"vocabulary": vocabulary, "pre": pre, "parse": name.endswith("_parse"), "lossless": name != "spm_phrases",
                           "examples": examples}
        print(name)
    common.save_json(args.out / "golden.json", {
        "versions": common.versions("sentencepiece"), "lines": len(lines), "sets": described})


if __name__ == "__main__":
    main()
