"""Byte-level BPE for make_tokenizers.py: one vocabulary, and the word-splitting rule of every
family.

The merges cross spaces, digits and punctuation, so a wrong split of words gives other ids. The
regular expressions come from the families' tokenizer.json files, in Oniguruma's syntax. Where we
know none (None), llama.cpp is the reference, and only ids are compared.
"""

import gguf
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

import golden_common as common
import tokenizer_llamacpp
from tokenizer_lines import Set, between_broken

VOCABULARY = "bytes.gguf"
SIZE = 3000
# No merges produce these tokens. Only ignore_merges uses them.
WHOLE = ("\u0120Captain's", "\u0120harbour,", "tidewater", "\u01201234", "123", "\u0120\u0120\u0120\u0120\u0120", "?!?", "isn't",
         "\u0120int", "HttpRequest", "\u0120\u0120")
CONTROLS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")

ANY_CASE = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
SPACE_TAIL = r"\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = ANY_CASE + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + SPACE_TAIL
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
QWEN35 = (ANY_CASE + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|" + SPACE_TAIL)
JAIS2 = LLAMA3.replace(r"\s+(?!\S)|\s+", "|".join(
    [rf"\s{{{n}}}(?!\S)" for n in (512, 256, 128, 64, 32, 16, 8, 4)] + [r"\s{1,2}(?!\S)", r"\s{1}"]))
LOW = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
HIGH = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
CASED_TAIL = r" ?[^\s\p{L}\p{N}]+[\r\n/]*|" + SPACE_TAIL
TEKKEN = f"{LOW}|{HIGH}|" + r"\p{N}|" + CASED_TAIL
GPT4O = f"{LOW}{ANY_CASE}?|{HIGH}{ANY_CASE}?|" + r"\p{N}{1,3}|" + CASED_TAIL
BAILING = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|"
           r"\s*[\r\n]|\s+(?!\S)|\s+")
DEEPSEEK3 = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"
             r" ?[\p{P}\p{S}]+[\r\n]*|" + SPACE_TAIL)
SEED_CODER = ANY_CASE + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|" + SPACE_TAIL
# The cased letters, as DeepSeek LLM lists them.
CASED = (
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373"
    "\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-"
    "\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-"
    "\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d"
    "\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-"
    "\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-"
    "\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-"
    "\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-"
    "\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-"
    "\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943")
OLD_HAN = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
DEEPSEEK_LLM = (r"[\r\n]", rf"\s?[{CASED}]+",
                "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+", r"\s+$", OLD_HAN, r"\p{N}+")
DEEPSEEK_CODER = (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", OLD_HAN, r"\p{N}")
NOT_HAN = r"&&[^\p{Han}]]"
KIMI_LOW = rf"[^\r\n\p{{L}}\p{{N}}]?[\p{{Lu}}\p{{Lt}}\p{{Lm}}\p{{Lo}}\p{{M}}{NOT_HAN}*[\p{{Ll}}\p{{Lm}}\p{{Lo}}\p{{M}}{NOT_HAN}+"
KIMI_HIGH = rf"[^\r\n\p{{L}}\p{{N}}]?[\p{{Lu}}\p{{Lt}}\p{{Lm}}\p{{Lo}}\p{{M}}{NOT_HAN}+[\p{{Ll}}\p{{Lm}}\p{{Lo}}\p{{M}}{NOT_HAN}*"
KIMI = (rf"[\p{{Han}}]+|{KIMI_LOW}{ANY_CASE}?|{KIMI_HIGH}{ANY_CASE}?|" + r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
        + SPACE_TAIL)
YOUTU = (r"[\uac00-\ud7a3\u3131-\u318e]+|[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c\u3001-\u303f\ufe30-\ufe4f]+|"
         r"[\u3105-\u312f]+|[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+").encode().decode("unicode_escape")


def split(*patterns):
    return lambda: [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns]


def gpt2(*before):
    return lambda: [*(made() for made in before), pre_tokenizers.ByteLevel(add_prefix_space=False)]


def digits():
    return pre_tokenizers.Digits(individual_digits=True)


# tokenizer.ggml.pre: (steps before the bytes, or None; ignore_merges)
RULES = {
    "llama-bpe": (split(LLAMA3), True),
    "glm4": (split(LLAMA3), True),
    "smaug-bpe": (split(LLAMA3), False),
    "jais-2": (split(JAIS2), False),
    "qwen2": (split(QWEN2), False),
    "qwen35": (split(QWEN35), False),
    "gpt-2": (gpt2(), False),
    "smollm": (gpt2(digits), False),
    "tekken": (split(TEKKEN), True),
    "gpt-4o": (split(GPT4O), False),
    "deepseek-v3": (split(r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+", DEEPSEEK3), False),
    "deepseek-llm": (split(*DEEPSEEK_LLM), False),
    "deepseek-coder": (split(*DEEPSEEK_CODER), False),
    "kimi-k2": (split(KIMI), False),
    "bailingmoe": (split(BAILING), False),
    "seed-coder": (split(SEED_CODER), False),
    "youtu": (split(YOUTU, TEKKEN.replace(LOW, LOW + ANY_CASE + "?").replace(HIGH, HIGH + ANY_CASE + "?")), True),
    "default": (None, False),
    "falcon": (None, False),
    "viking": (None, False),
    "poro-chat": (None, False),
}

# Other names of these rules in published files; llama.cpp gives the same ids under each (make_tokenizers.py --check).
ALIASES = {
    "llama-bpe": ("llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano"),
    "glm4": ("glm5",),
    "smaug-bpe": ("chatglm-bpe", "dbrx"),
    "qwen2": ("deepseek-r1-qwen", "kormo", "f2llmv2", "megrez", "stablelm2", "hunyuan", "solar-open", "grok-2"),
    "gpt-2": ("phi-2", "mpt", "olmo", "jais", "trillion", "granite-docling", "exaone4", "gigachat", "a.x-4.0",
              "mellum", "modern-bert", "jina-es", "jina-de", "jina-v2-es", "jina-v2-de"),
    "smollm": ("starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b", "mellum2"),
    "gpt-4o": ("llama4", "kanana2", "minimax-m2", "talkie"),
    "deepseek-v3": ("hunyuan-dense", "joyai-llm"),
    "bailingmoe": ("bailingmoe2", "llada-moe"),
    "poro-chat": ("bloom", "gpt3-finnish"),
}


def train(folder, corpus):
    """Writes the vocabulary. It is trained without a pre-tokenizer, so merges cross word
    borders."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.train_from_iterator(corpus, trainers.BpeTrainer(
        vocab_size=SIZE, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False,
        max_token_length=24))
    folder.joinpath("bpe").mkdir(exist_ok=True)
    vocabulary, merges = tokenizer.model.save(str(folder / "bpe"))
    ids, merges = models.BPE.read_file(vocabulary, merges)
    for path in folder.joinpath("bpe").iterdir():
        path.unlink()
    folder.joinpath("bpe").rmdir()
    tokens = sorted(ids, key=ids.get)
    tokens += [token for token in WHOLE if token not in ids] + list(CONTROLS)
    tokenizer_llamacpp.write_bpe(folder / VOCABULARY, tokens, merges, CONTROLS)


def _encoder(fields, steps, ignore_merges):
    """Line -> the sizes of its words in bytes, -1, its ids."""
    tokens = fields["tokenizer.ggml.tokens"]
    merges = [tuple(line.split(" ", 1)) for line in fields["tokenizer.ggml.merges"]]
    # The library is stricter than GGUF: the parts and the result of a merge must be tokens.
    tokenizer = Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)}, merges, ignore_merges=ignore_merges))
    words = pre_tokenizers.Sequence(steps())
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    has_bytes = isinstance(steps()[-1], pre_tokenizers.ByteLevel)
    tokenizer.pre_tokenizer = words if has_bytes else pre_tokenizers.Sequence([*steps(), to_bytes])

    def encode(line):
        pieces = words.pre_tokenize_str(line)
        sizes = [len(line[start:end].encode()) for _, (start, end) in pieces]
        return sizes + [-1] + tokenizer.encode(line).ids
    return encode


def ids_of(encode):
    """Returns the encoder without the sizes of words."""
    def ids(line):
        numbers = encode(line)
        return numbers[numbers.index(-1) + 1:] if -1 in numbers else numbers
    return ids


def _byte_ids(tokens):
    """The token of each single byte. Printable bytes stand for themselves; the others are mapped in
    order to U+0100 and up."""
    prints = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [byte for byte in range(256) if byte not in prints]
    ids = {text: i for i, text in enumerate(tokens)}
    return [ids[chr(byte if byte in prints else 256 + rest.index(byte))] for byte in range(256)]


def sets(folder):
    """One Set for every rule. Lines that are not UTF-8 compare only ids."""
    fields, _ = common.read_gguf(folder / VOCABULARY)
    byte_ids = _byte_ids(fields["tokenizer.ggml.tokens"])
    for pre, (steps, ignore_merges) in RULES.items():
        if steps is None:
            encode = tokenizer_llamacpp.encoder(folder / VOCABULARY, pre)
        else:
            encode = _encoder(fields, steps, ignore_merges)
        yield Set(pre, VOCABULARY, pre, encode, between_broken(ids_of(encode), byte_ids))
