"""The lines on which tokenizers are compared: from a seed, in many scripts, with inputs that are
hard to split.

A line is bytes. Most lines are valid UTF-8 and do not end with a line end. Characters are those of
Unicode 14 (the tables of Python 3.11), which every reference supports.
"""

import dataclasses
import random
import unicodedata
from collections.abc import Callable

SEED = 20261121
COUNT = 11_000  # at least 10,000 of them can be compared in every set

WORDS = {
    "en": "the of and to harbour tide is that boat rope it was Captain's don't we'll I'VE they'Re "
          "she'd isn't co-operate e.g. U.S. naïve café rôle tokenizer internationalisation",
    "de": "der Fluß über Straße größer Öl schön Übermut Donaudampfschifffahrtsgesellschaft nämlich",
    "fr": "l'eau qu'il aujourd'hui c'est où garçon œuvre déjà s'il Noël",
    "es": "¿Qué señor mañana ¡Olé! corazón pingüino año",
    "pl": "zażółć gęślą jaźń Łódź źdźbło",
    "tr": "İstanbul ığdır çiçek şöyle güneş",
    "vi": "Việt Nam tiếng nước đường ngữ không",
    "ru": "привет мир ёлка объявление Москва что-то",
    "uk": "їжак ґанок м'яч Україна",
    "el": "Ελλάδα θάλασσα Ὀδύσσεια σήμερα ΤΈΛΟΣ",
    "he": "שלום עולם שָׁלוֹם ירושלים",
    "ar": "مرحبا بالعالم كِتَابٌ السلام ١٢٣٤ اللغة",
    "fa": "سلام می‌خواهم دنیا ۱۲۳",
    "hi": "नमस्ते दुनिया क्षत्रिय हिन्दी १२३ विद्यार्थी",
    "bn": "বাংলা ভাষা নমস্কার ৪৫৬",
    "ta": "தமிழ் வணக்கம் உலகம்",
    "te": "తెలుగు నమస్కారం",
    "th": "สวัสดีชาวโลก ภาษาไทย น้ำ ๑๒๓",
    "lo": "ສະບາຍດີ ພາສາລາວ",
    "km": "សួស្តី ភាសាខ្មែរ",
    "my": "မင်္ဂလာပါ မြန်မာ",
    "ka": "გამარჯობა საქართველო",
    "hy": "Բարեւ աշխարհ",
    "am": "ሰላም ዓለም",
    "zh": "你好世界 机器学习 港口的潮水，今天很高。 「引号」 繁體中文 一二三 銀行",
    "ja": "こんにちは 世界 カタカナ ｶﾀｶﾅ 日本語、テスト。 東京タワー ヴァイオリン",
    "ko": "안녕하세요 세계 한국어 띄어쓰기 ㄱㄴㄷ 조선말",
    "mn": "ᠮᠣᠩᠭᠣᠯ ᠠ\u180eᠡ",
}
CODE = (
    "def f(x, *args, **kwargs) -> dict[str, int]:\n    return {k: v for k, v in x.items()}",
    "for (int i = 0; i < n; ++i) { a[i] += b[i] * 0x1F; }  // loop",
    "#include <vector>\n\ntemplate <typename T>\nclass Foo {\n public:\n\tvoid bar();\n};",
    "SELECT id, name FROM users WHERE age >= 21 AND email LIKE '%@example.com';",
    "fn main() -> Result<(), Box<dyn Error>> {\r\n\tprintln!(\"{:?}\", x);\r\n}",
    "<div class=\"a b\" id='c'>text &amp; more</div>", "{\"key\": [1, 2.5e-3, null, true], \"x\": {}}",
    "https://example.org/a/b?c=d&e=%20f#g", "user@host:~/src$ grep -rn 'foo.*bar' . | wc -l",
    "$$\\int_0^\\infty e^{-x^2}\\,dx = \\frac{\\sqrt{\\pi}}{2}$$", "a=b==c!=d<=e>=f&&g||!h?i:j",
    "/* comment */ -- another\n# third\n;; fourth", "x\t\ty\t z\n\n\n  w", "foo_bar fooBar FooBar FOO_BAR",
    "camelCaseXMLHttpRequest2Go", "λx.λy.x(y) ∀ε>0 ∃δ>0: |x−a|<δ ⇒ |f(x)−L|<ε",
)
EMOJI = ("😀", "👍🏽", "👩‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪🇯🇵", "❤️", "☕", "👨🏿‍🚀", "🤷🏻‍♀️", "1️⃣", "🧑‍💻", "©️", "™")
SPECIALS = ("<s>", "</s>", "<unk>", "<pad>", "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|eot_id|>",
            "[INST]", "[/INST]", "<start_of_turn>", "<end_of_turn>", "<0x0A>", "<0xE2>", "<|begin_of_text|>",
            "<<SYS>>", "<tool_call>", "</tool_call>", "<|", "|>", "<s", "s>", "<<s>>", "<|im_<|im_end|>",
            "<｜User｜>", "[PAD7]", "<custom>", "<custom_tag>")
SPACES = (" ", "  ", "   ", "        ", "\t", "\t\t", "\n", "\n\n", "\n\n\n\n", "\r\n", "\r\n\r\n", " \n", "\n ", "\r",
          "\u00a0", "\u3000", "\u2003", "\u2028", "\u202f", "\u200b", "\ufeff", "\u0085", "\u1680", "\u180e",
          "\x0b", "\x0c", " \t ", " " * 17, "\n" * 9, "\u2581", "\u2581\u2581", " \u2581")
PUNCTUATION = list("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~") + [
    "...", "…", "—", "–", "''", "``", "''s", "’s", "’t", "“x”", "«y»", "!!!", "?!", "->", "=>", "://", "==", "§", "°",
    "€5", "£", "½", "²", "‰", "•", "→", "†", "·", "、", "。", "！", "？", "，", "（", "）", "¿", "、。"]
MARKS = "\u0301\u0308\u0327\u0303\u20dd\u0e31\u094d\u05b8\u064e\u1ab0\u3099\ufe0f\u200d\u0489"
LETTERS = "aeiouncyAEIOUZ한日яש"


def assigned_characters():
    """Returns every assigned character of Unicode 14, except surrogates and private use."""
    return [chr(c) for c in range(0x110000)
            if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co")]


def numbers(rng):
    kind = rng.randrange(8)
    if kind == 0:
        return str(rng.randrange(10 ** rng.randrange(1, 16)))
    if kind == 1:
        return f"{rng.randrange(10**9):,}"
    if kind == 2:
        return f"{rng.uniform(-1e6, 1e6):.{rng.randrange(7)}f}"
    if kind == 3:
        return f"{rng.randrange(1900, 2100)}-{rng.randrange(1, 13):02}-{rng.randrange(1, 29):02}"
    if kind == 4:
        return "".join(rng.choice("٠١٢٣٤٥٦٧٨٩") for _ in range(rng.randrange(1, 8)))
    if kind == 5:
        return "".join(rng.choice("①②Ⅻ¼½¾²³０１２３४५६௧௨") for _ in range(rng.randrange(1, 6)))
    if kind == 6:
        return hex(rng.randrange(1 << 40))
    return "-".join(str(rng.randrange(1000)) for _ in range(3))


def sentence(rng, words):
    count = rng.randrange(1, 16)
    picked = [rng.choice(words) for _ in range(count)]
    picked = [w.upper() if rng.random() < 0.06 else w.title() if rng.random() < 0.08 else w for w in picked]
    text = rng.choice((" ", " ", " ", "", "  ")).join(picked)
    return text + rng.choice(("", ".", "!", "?", ",", ";", " ...", "\n"))


def marked(rng):
    out = ""
    for _ in range(rng.randrange(2, 12)):
        out += rng.choice(LETTERS) + "".join(rng.choice(MARKS) for _ in range(rng.randrange(3)))
    return out if rng.random() < 0.5 else unicodedata.normalize("NFD", "Ñandú crème brûlée Ångström각")


def long_word(rng):
    unit = rng.choice(("a", "ab", "the", "🙂", "中", "0", "!", "é", " ", "_", "=", "-", "ba na"))
    return unit * rng.randrange(20, 260)


def mixture(rng, words, every):
    parts = []
    for _ in range(rng.randrange(1, 14)):
        kind = rng.randrange(8)
        if kind <= 1:
            parts.append(rng.choice(words))
        elif kind == 2:
            parts.append(rng.choice(SPACES))
        elif kind == 3:
            parts.append(rng.choice(PUNCTUATION))
        elif kind == 4:
            parts.append(numbers(rng))
        elif kind == 5:
            parts.append(rng.choice(EMOJI))
        elif kind == 6:
            parts.append(rng.choice(SPECIALS))
        else:
            parts.append(rng.choice(every))
    return "".join(parts)


def broken(rng, words, every):
    """Returns a mixture with bytes deleted, doubled or inserted. It is rarely valid UTF-8."""
    data = bytearray(mixture(rng, words, every).encode())
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(data) + 1)
        kind = rng.randrange(3)
        if kind == 0 and data:
            del data[min(at, len(data) - 1)]
        elif kind == 1:
            data[at:at] = bytes([rng.randrange(256)])
        else:
            data[at:at] = rng.choice((b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82", b"\x80"))
    return bytes(data)


def make_lines():
    """COUNT byte strings."""
    rng = random.Random(SEED)
    every = assigned_characters()
    by_language = {name: text.split(" ") for name, text in WORDS.items()}
    words = [word for group in by_language.values() for word in group]
    fixed = ["", " ", "  ", "\n", "a", " a", "a ", "\u2581", "\0", "a\0b", "'", "'s", "''", "<", *CODE, *EMOJI,
             *SPECIALS, *SPACES, *PUNCTUATION]
    lines = [text.encode() for text in fixed]
    while len(lines) < COUNT:
        kind = rng.randrange(20)
        if kind < 8:
            line = sentence(rng, by_language[rng.choice(list(by_language))])
        elif kind < 9:
            line = "\n".join(rng.sample(CODE, rng.randrange(1, 3)))[:rng.randrange(20, 160)]
        elif kind < 10:
            line = " ".join(numbers(rng) for _ in range(rng.randrange(1, 6)))
        elif kind < 11:
            line = marked(rng)
        elif kind < 12 and rng.random() < 0.25:
            line = long_word(rng)
        elif kind < 13:
            line = "".join(rng.choice(every) for _ in range(rng.randrange(1, 24)))
        elif kind < 14:
            lines.append(broken(rng, words, every))
            continue
        else:
            line = mixture(rng, words, every)
        lines.append(line.encode())
    return lines


def make_corpus():
    """Text to train vocabularies on: sentences, code and numbers, without the odd characters."""
    rng = random.Random(SEED + 1)
    groups = [text.split(" ") for text in WORDS.values()]
    texts = [sentence(rng, rng.choice(groups)) for _ in range(8000)]
    return texts + [numbers(rng) for _ in range(500)] + list(CODE) * 10


def is_utf8(line):
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


@dataclasses.dataclass
class Set:
    """One way to tokenise the lines, by a reference. Each function returns None if the reference
    defines no result."""
    name: str
    vocabulary: str  # its file
    pre: str | None  # tokenizer.ggml.pre, where it is not the file's
    encode: Callable  # str -> numbers
    encode_broken: Callable = lambda line: None  # bytes that are not UTF-8 -> ids

    def numbers(self, line):
        return self.encode(line.decode()) if is_utf8(line) else self.encode_broken(line)


def between_broken(encode, byte_ids):
    """Bytes -> ids, for references that accept only text: each invalid byte becomes a token
    (byte_ids, by byte), and the text between invalid bytes is encoded separately."""
    def encode_broken(line):
        ids, text = [], ""
        for character in line.decode(errors="surrogateescape") + "\udc80":
            if not "\udc80" <= character <= "\udcff":
                text += character
                continue
            ids += encode(text) if text else []
            ids.append(byte_ids[ord(character) - 0xDC00])
            text = ""
        return ids[:-1]
    return encode_broken
