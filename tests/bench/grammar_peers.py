"""Computes masks with Tidepool and llguidance for the same outputs. masks_bench.py and
tests/golden/check_masks.py use it.

Both engines get the same vocabulary, schema and whitespace. Needs tools/setup --peers.
"""

import base64
import json
import pathlib
import subprocess
import time

import llguidance
import llguidance.numpy
import numpy

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCHEMAS = ROOT / "tests/golden/schemas/schemas.jsonl"
SMOLLM2 = ROOT / ".cache/models/SmolLM2-135M-Instruct.Q4_1.gguf"
TEKKEN = ROOT / ".cache/tekken_240911.json"
# As in docs/structured_output.md.
WHITESPACE = r"( |\n[ \t]{0,20})?"
MAX_TOKEN_BYTES = 64


class Vocabulary:
    """The bytes of each token (b"" for control tokens), and the id of the end token."""

    def __init__(self, tokens, end):
        self.tokens = tokens
        self.end = end
        self.ids = {text: number for number, text in enumerate(tokens) if text}
        self.llguidance = llguidance.LLTokenizer(llguidance.TokenizerWrapper(Wrapped(self)))

    def encode(self, text):
        """Returns the ids of the text. At each position, it takes the longest token."""
        ids, at = [], 0
        while at < len(text):
            size = next(size for size in range(min(MAX_TOKEN_BYTES, len(text) - at), 0, -1)
                        if text[at:at + size] in self.ids)
            ids.append(self.ids[text[at:at + size]])
            at += size
        return ids


class Wrapped:
    """A vocabulary in the form that llguidance reads."""

    bos_token_id = None

    def __init__(self, vocabulary):
        self.encode = vocabulary.encode
        self.eos_token_id = vocabulary.end
        self.special_token_ids = [number for number, text in enumerate(vocabulary.tokens) if not text]
        self.tokens = [text or f"<|control {number}|>".encode() for number, text in enumerate(vocabulary.tokens)]

    def __call__(self, text):
        return self.encode(text if isinstance(text, bytes) else text.encode())


def letters_of_bytes():
    """Returns the character for each byte in GPT-2's vocabularies."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {**{chr(byte): byte for byte in plain}, **{chr(256 + i): byte for i, byte in enumerate(others)}}


def read_smollm2():
    """Returns SmolLM2's vocabulary of 49,152 tokens."""
    import gguf
    fields = gguf.GGUFReader(SMOLLM2).fields
    kinds = fields["tokenizer.ggml.token_type"].contents()
    byte_of = letters_of_bytes()
    tokens = [bytes(byte_of[letter] for letter in text) if kind == gguf.TokenType.NORMAL else b""
              for text, kind in zip(fields["tokenizer.ggml.tokens"].contents(), kinds)]
    return Vocabulary(tokens, int(fields["tokenizer.ggml.eos_token_id"].contents()))


def read_tekken():
    """Returns a vocabulary of Mistral's models, with 131,072 tokens."""
    file = json.loads(TEKKEN.read_text())
    size, control = file["config"]["default_vocab_size"], file["config"]["default_num_special_tokens"]
    texts = [base64.b64decode(token["token_bytes"]) for token in file["vocab"][:size - control]]
    return Vocabulary([b""] * control + texts, 2)


VOCABULARIES = {"smollm2": read_smollm2, "tekken": read_tekken}


def read_schemas():
    with SCHEMAS.open(encoding="utf-8") as file:
        return [json.loads(line) for line in file]


class Refused(Exception):
    pass


class Peer:
    """Computes masks with llguidance. Times are in microseconds."""

    def __init__(self, vocabulary):
        self.vocabulary = vocabulary
        self.mask = llguidance.numpy.allocate_token_bitmask(1, len(vocabulary.tokens))

    def compile(self, schema):
        """Returns a matcher, and the time."""
        begin = time.thread_time()
        grammar = llguidance.LLMatcher.grammar_from_json_schema(
            json.dumps(schema), overrides={"whitespace_pattern": WHITESPACE, "whitespace_flexible": True})
        matcher = llguidance.LLMatcher(self.vocabulary.llguidance, grammar, log_level=0)
        if matcher.is_error():
            raise Refused(matcher.get_error())
        return matcher, 1e6 * (time.thread_time() - begin)

    def fill(self, matcher):
        """Returns the mask as bytes, and the time."""
        begin = time.thread_time()
        llguidance.numpy.fill_next_token_bitmask(matcher, self.mask, 0)
        spent = 1e6 * (time.thread_time() - begin)
        if matcher.is_error():
            raise Refused(matcher.get_error())
        return self.mask[0].view(numpy.uint8).tobytes(), spent


class Tidepool:
    """Computes masks with tests/bench/grammar_masks, which runs as a child process."""

    def __init__(self, program, vocabulary):
        self.child = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.write({"tokens": [token.hex() for token in vocabulary.tokens], "stop": [vocabulary.end]})

    def write(self, line):
        self.child.stdin.write(json.dumps(line) + "\n")
        self.child.stdin.flush()

    def ask(self, schema, walks, masks):
        self.write({"schema": schema, "whitespace_pattern": WHITESPACE, "walks": walks, "masks": masks})
        answer = json.loads(self.child.stdout.readline())
        if not answer["compiled"]:
            raise Refused(answer["error"])
        return answer

    def close(self):
        self.child.stdin.close()
        self.child.wait()

