"""Makes small_vocab.json and tokenizer_golden.json: the results of Hugging Face's tokenizers
library.

    python make_tokenizer_golden.py SmolLM2-135M-Instruct.Q4_1.gguf

The vocabulary is SmolLM2's (Apache-2.0, Hugging Face). small_vocab.json is its beginning: control
tokens, bytes, and the tokens of the first merges. The reference tokenizers are built here from the
same merges; their regular expressions run in Oniguruma, not in the engine under test.
"""

import json
import pathlib
import random
import sys
import unicodedata

import gguf
from tokenizers import AddedToken, Regex, Tokenizer, models, pre_tokenizers

HERE = pathlib.Path(__file__).resolve().parent
SMALL_MERGES = 2000

# As the tokenizer.json files of the model families have them.
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
          r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
QWEN35 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}|"
          r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
WORD_LOW = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+")
WORD_HIGH = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*")
CASED_TAIL = r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
TEKKEN = f"{WORD_LOW}|{WORD_HIGH}|" + r"\p{N}|" + CASED_TAIL
SUFFIX = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
GPT4O = f"{WORD_LOW}{SUFFIX}|{WORD_HIGH}{SUFFIX}|" + r"\p{N}{1,3}|" + CASED_TAIL
BAILING = (r"'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|"
           r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+")
DEEPSEEK3 = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"
             r" ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def split(pattern):
    return pre_tokenizers.Split(Regex(pattern), "isolated")


def gpt2():
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


# GGUF's name: (pre-tokenizer without the byte alphabet's step where that matters not, ignore_merges)
RULES = {
    "smollm": (lambda: pre_tokenizers.Sequence([pre_tokenizers.Digits(True), gpt2()]), False),
    "gpt-2": (gpt2, False),
    "llama-bpe": (lambda: split(LLAMA3), True),
    "qwen2": (lambda: split(QWEN2), False),
    "qwen35": (lambda: split(QWEN35), False),
    "tekken": (lambda: split(TEKKEN), True),
    "gpt-4o": (lambda: split(GPT4O), False),
    "bailingmoe": (lambda: split(BAILING), False),
    "deepseek-v3": (lambda: pre_tokenizers.Sequence(
        [split(r"\p{N}{1,3}"), split("[一-龥぀-ゟ゠-ヿ]+"), split(DEEPSEEK3)]), False),
}

# Rules for which the file has the ids of the small vocabulary in addition to the splits.
ID_RULES = ("smollm", "gpt-2", "llama-bpe", "qwen2")

LINES = [
    "", " ", "  ", "a", " a", "a ", "\n", "\r\n", "\n\n\n", "\t\tx", " \t x", "x   ", "x   y", "   x",
    "Hello, world!", "The quick brown fox jumps over the lazy dog.", "The sky is",
    "I'm sure they're here; we've won, it's what I'd said she'll do, don't you?",
    "I'M SURE THEY'RE HERE; WE'VE WON, IT'S WHAT I'D SAID SHE'LL DO, DON'T YOU?",
    "'s 't 're 'LL 'Ve 'x ' '' 'sS rock'n'roll o'clock '\u017f ma\u00f1ana's l'\u00e9t\u00e9",
    "0 1 12 123 1234 12345 1234567890 3.14159 1,000,000 2026-01-31T23:59:59Z 0x1F4A9 1e-5",
    "\u00b2\u00b3\u00bd \u2167 \u0661\u0662\u0663 \u0967\u0968 \uff11\uff12 \U0001d7d8\U0001d7d9 \u3007",
    "def f(x: int) -> int:\n    return x * 2  # twice\n\n\nprint(f(21))\n",
    "\tif (a != b && c <= d) {\r\n\t\tfoo->bar[i++] = ~0x0f;\r\n\t}\r\n",
    "SELECT * FROM t WHERE name LIKE '%a\\_b%' AND id <> 3; -- comment",
    "<div class=\"x\">&nbsp;<a href='https://example.org/?q=1&r=%20#top'>link</a></div>",
    "{\"key\": [1, 2.5, -3e10, true, null], \"nested\": {\"a\\n\": \"\\u00e9\"}}",
    "template <typename T> auto&& f(T&& t) noexcept(noexcept(g(t)));",
    "CamelCaseWord snake_case_word kebab-case-word SCREAMING_SNAKE mixedUPPERlower iPhone HTTPServer",
    "\u00c9t\u00e9 \u00e0 No\u00ebl: \u00ab \u0153uvre \u00bb, gar\u00e7on na\u00eff \u2014 d\u00e9j\u00e0-vu\u2026",
    "Gr\u00f6\u00dfe \u00dcbung Stra\u00dfe \u1e9e \u00c4rger", "e\u0301 a\u0308 n\u0303 o\u0302\u0323 decomposed",
    "\u041f\u0440\u0438\u0432\u0435\u0442, \u043a\u0430\u043a \u0434\u0435\u043b\u0430? \u0425\u043e\u0440\u043e\u0448\u043e! \u0401\u0436\u0438\u043a",
    "\u4f60\u597d\uff0c\u4e16\u754c\uff01\u4eca\u5929\u5929\u6c14\u5f88\u597d\u3002\u6211\u6709123\u4e2a\u82f9\u679c\u3002",
    "\u65e5\u672c\u8a9e\u306e\u30c6\u30ad\u30b9\u30c8\u3068\u30ab\u30bf\u30ab\u30ca\u3001\u3072\u3089\u304c\u306a\u3002\u30b9\u30fc\u30d1\u30fc",
    "\uc548\ub155\ud558\uc138\uc694 \uc138\uacc4 \ud55c\uad6d\uc5b4 123\uac1c",
    "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645\u060c \u0643\u064a\u0641 \u062d\u0627\u0644\u0643\u061f \u0661\u0662\u0663",
    "\u05e9\u05b8\u05c1\u05dc\u05d5\u05b9\u05dd \u05e2\u05d5\u05dc\u05dd", "\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e \u0915\u094d\u0937\u093f",
    "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35\u0e0a\u0e32\u0e27\u0e42\u0e25\u0e01", "\u10d2\u10d0\u10db\u10d0\u10e0\u10ef\u10dd\u10d1\u10d0 \u0540\u0561\u0575\u0565\u0580\u0565\u0576",
    "\U0001f600\U0001f602 \U0001f44d\U0001f3fd \U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 \U0001f1eb\U0001f1f7 \u2764\ufe0f x\U0001f680y",
    "a\u00a0b \u00a0 c\u3000d\u2003e\u200bf\u2028g\u2029h\u0085i\u180ej\ufeffk \u202f l",
    "\u2200x\u2208\u211d: \u2203\u03b5>0 \u21d2 \u222b\u2080\u00b9 f(x)dx \u2248 \u03c0\u00b2/6 \u2260 \u221e",
    "$100 \u20ac50 \u00a33 \u00a51000 50% #tag @user a+b=c ~/path C:\\dir\\file.txt",
    "!!! ??? ... --- *** ___ ((())) [[[]]] {{{}}} <<<>>> |||", "=====\n-----\n*****\n", "http://a.b/c//d///e\n\n/x/\n",
    "word\nword\r\nword\rword\n\n  indented\n\n\n\t\ttabs\n   \n  \nend\n",
    "spaces before newline   \n   spaces after", "   \n\n   \n x", " \r\n \r\n", "\n \n \n", "a\n\n b", "a \n b  \n\n  c   ",
    "\x00\x01\x02\x07\x1b[31mred\x1b[0m\x7f", "tab\tseparated\tvalues\there", "\u0007bell\u000bvt\u000cff",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "antidisestablishmentarianism pneumonoultramicroscopicsilicovolcanoconiosis supercalifragilistic",
    " " * 40 + "x" + " " * 17 + "\n" + " " * 9, "thethethethethethethethethethethethethethethethethe" * 2,
    "\u01c5 \u01c8 \u02b0 \u02bc \u2071 \u2126\u212a\u212b \u1e9b", "\ufb01\ufb02 \ufdfa \u33a5 \u24b6 \u2460",
    "<|im_start|>user\nHello<|im_end|>\n<|endoftext|>", "<|im_start|", "|im_end|>", "<|<|im_end|>|>",
    "<|im_end|><|im_end|> <|im_start|>", "<file_sep><reponame>x<repo_name>", "<|im_start|>system\n<|IM_END|>",
]


def assigned_long_ago(rng):
    """Returns a character that has the same category in the Unicode versions of all engines."""
    while True:
        point = rng.choice((rng.randrange(0x20, 0x250), rng.randrange(0x250, 0x3000),
                            rng.randrange(0x3000, 0xA000), rng.randrange(0x20, 0x7F)))
        char = chr(point)
        old = unicodedata.ucd_3_2_0.category(char)
        if old not in ("Cn", "Cs", "Co") and old == unicodedata.category(char):
            return char


def random_lines(count):
    rng = random.Random(20260101)
    words = "the of and model token expert 42 7 Mixture don't we'll \u00e9t\u00e9 \u4e2d\u6587 x_y A.B --flag".split()
    glue = [" ", " ", " ", "  ", "\n", "\r\n", "\t", ", ", ". ", "", "-", "   ", "\n\n", " \n ", "\u00a0"]
    lines = []
    for i in range(count):
        if i % 2:
            lines.append("".join(assigned_long_ago(rng) for _ in range(rng.randrange(1, 40))))
        else:
            lines.append("".join(rng.choice(words) + rng.choice(glue)
                                 for _ in range(rng.randrange(1, 14))))
    return lines


def build(tokens, merges, controls, rule):
    """Returns a reference tokenizer. It recognises `controls` in the text."""
    make, ignore_merges = RULES[rule]
    vocab = {token: i for i, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[tuple(m.split(" ")) for m in merges],
                                     ignore_merges=ignore_merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [make(), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
        if rule not in ("smollm", "gpt-2") else [make()])
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in controls])
    return tokenizer


def piece_sizes(rule, line):
    """Returns the sizes of a line's pre-tokens in bytes."""
    pieces = RULES[rule][0]().pre_tokenize_str(line)
    sizes = [len(line[begin:end].encode()) for _, (begin, end) in pieces]
    assert sum(sizes) == len(line.encode()), (rule, line)
    return sizes


def ids(tokenizer, lines):
    return [tokenizer.encode(line, add_special_tokens=False).ids for line in lines]


def write(name, value):
    """Writes compact JSON, because only tests read the files."""
    (HERE / name).write_text(json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n")


def main():
    reader = gguf.GGUFReader(sys.argv[1])
    field = lambda name: reader.fields["tokenizer.ggml." + name].contents()
    tokens, types, merges = field("tokens"), field("token_type"), field("merges")
    controls = [token for token, kind in zip(tokens, types) if kind == 3]

    merged = {merge.replace(" ", "") for merge in merges}
    small_merges = merges[:SMALL_MERGES]
    kept = {merge.replace(" ", "") for merge in small_merges}
    small = [token for token in tokens if token not in merged or token in kept]
    write("small_vocab.json", {
        "tokens": small, "controls": len(controls), "merges": small_merges,
        "bos_id": field("bos_token_id"), "eos_id": field("eos_token_id"),
        "unknown_id": field("unknown_token_id")})
    assert small[:len(controls)] == controls

    lines = LINES + random_lines(190)
    write("tokenizer_golden.json", {
        "lines": lines,
        # The ids if control tokens are recognised, and the ids if they are text.
        "full_parse": ids(build(tokens, merges, controls, "smollm"), lines),
        "full_text": ids(build(tokens, merges, [], "smollm"), lines),
        "small": {rule: ids(build(small, small_merges, [], rule), lines) for rule in ID_RULES},
        "splits": {rule: [piece_sizes(rule, line) for line in lines] for rule in RULES},
    })


if __name__ == "__main__":
    main()
