#!/usr/bin/env python3
"""Compares `tidepool grammar` with llama.cpp's grammar sampler, for each grammar on all short texts
of some letters.

    tests/golden/check_gbnf_with_llamacpp.py TIDEPOOL_BINARY

Needs tools/setup --peers.
"""

import ctypes
import itertools
import json
import pathlib
import subprocess
import sys
import tempfile

import llama_cpp

MODEL = ".cache/models/SmolLM2-135M-Instruct.Q4_1.gguf"
# Grammar, letters and the maximum length of the texts.
CASES = [
    ('root ::= "a" | "bc" | "abc"', "abc", 5),
    ('root ::= ("a" "b"?)* "c"+', "abc", 6),
    ('root ::= [a-c]{2,3} ("-" [0-1]{2})?', "abc-01", 5),
    ('root ::= [^ab]{1,} "b"{0,2}', "abcd", 5),
    ('root ::= "(" root ")" root | ""', "()", 8),
    ('root ::= item ("," item)*\nitem ::= "a" | "[" root? "]"', "a[],", 6),
    ('root ::= "a" root "b" | "ab" | "c"', "abc", 7),
    ('root ::= sum\nsum ::= product (("+" | "-") product)*\nproduct ::= atom ("*" atom)*\natom ::= [0-9] | "(" sum ")"',
     "1+*()", 6),
    ('root ::= "\\x41" "\\u00e9" [\\u00e0-\\u00ff]? "\\n"?', "A\u00e9\u00e0\n", 4),
    ('# a comment\nroot ::= word (" " word){1,2}   # and another\nword ::= [a-b]+ |\n  "c"', "abc ", 6),
    ('root ::= . "a" .?', "ab\u00e9", 4),
    ('root ::= [^\\n"\\\\]* "\\"" [\\]\\-a]', 'a"\\]-\n', 4),
    ('root ::= ("a"{2}){2} | ("b"{1,2} "c"){2,3}', "abc", 7),
    ('root ::= ("" | "a") ("" | "b") ("a" | "")', "abc", 4),
    ('root ::= yes-or-no ("!" | yes-or-no)?\nyes-or-no ::= "y" "es"? | "n" "o"?', "yesno!", 4),
    ('root ::= object\nobject ::= "{" (pair ("," pair)*)? "}"\npair ::= "a:" value\nvalue ::= object | "1" | "[" value* "]"',
     "{}a:1[],", 5),
    ('root ::= [0-9]+ ("." [0-9]+)? ([eE] [+-]? [0-9]+)?', "05.e-", 6),
    ('root ::= (("a" | "b")* "a" ("a" | "b"))', "ab", 9),
    ('root ::= "\\t" | "\\r" | " "+ [\\t]?', "\t\r ", 4),
    ('root ::= a b\na ::= "x"*\nb ::= "x"{2,3} "y"', "xy", 8),
]


class Sampler:
    """A grammar in llama.cpp."""

    def __init__(self, vocabulary, grammar, handle=None):
        self.vocabulary = vocabulary
        self.grammar = grammar
        self.handle = handle or llama_cpp.llama_sampler_init_grammar(vocabulary, grammar.encode(), b"root")
        if not self.handle:
            raise ValueError(f"llama.cpp refuses {grammar!r}")

    def __del__(self):
        if self.handle:
            llama_cpp.llama_sampler_free(self.handle)

    def clone(self):
        return Sampler(self.vocabulary, self.grammar, llama_cpp.llama_sampler_clone(self.handle))

    def allows(self, token):
        one = llama_cpp.llama_token_data(token, 0.0, 0.0)
        data = (llama_cpp.llama_token_data * 1)(one)
        array = llama_cpp.llama_token_data_array(ctypes.cast(data, ctypes.POINTER(llama_cpp.llama_token_data)), 1, -1, False)
        llama_cpp.llama_sampler_apply(self.handle, ctypes.byref(array))
        return array.size == 1 and data[0].logit == 0.0

    def after(self, tokens):
        """Returns the sampler after these tokens, or None if the grammar does not allow them."""
        sampler = self
        for token in tokens:
            if not sampler.allows(token):
                return None
            sampler = sampler.clone()
            llama_cpp.llama_sampler_accept(sampler.handle, token)
        return sampler


def tokens_of(vocabulary, text):
    data = text.encode()
    ids = (llama_cpp.llama_token * 8)()
    count = llama_cpp.llama_tokenize(vocabulary, data, len(data), ids, 8, False, False)
    return list(ids[:count])


def accepted_texts(sampler, letters, size, end):
    """Returns all texts of at most `size` letters that the grammar accepts."""
    found, level = set(), {"": sampler}
    for _ in range(size + 1):
        found |= {text for text, at in level.items() if at.allows(end)}
        following = {text + letter: at.after(tokens) for text, at in level.items() for letter, tokens in letters.items()}
        level = {text: at for text, at in following.items() if at is not None}
    return found


def main():
    llama_cpp.llama_backend_init()
    params = llama_cpp.llama_model_default_params()
    params.vocab_only = True
    model = llama_cpp.llama_model_load_from_file(MODEL.encode(), params)
    vocabulary = llama_cpp.llama_model_get_vocab(model)
    end = llama_cpp.llama_vocab_eos(vocabulary)
    lines, expected = [], []
    for grammar, alphabet, size in CASES:
        letters = {letter: tokens_of(vocabulary, letter) for letter in alphabet}
        texts = ["".join(text) for count in range(size + 1) for text in itertools.product(alphabet, repeat=count)]
        found = accepted_texts(Sampler(vocabulary, grammar), letters, size, end)
        expected.append([text in found for text in texts])
        lines.append({"grammar": grammar, "texts": texts})
    with tempfile.TemporaryDirectory() as folder:
        batch = pathlib.Path(folder) / "batch.jsonl"
        batch.write_text("\n".join(map(json.dumps, lines)))
        output = subprocess.run([sys.argv[1], "grammar", "--batch", batch, "--json"], capture_output=True, text=True, check=True)
    wrong = 0
    for line, accepts, result in zip(lines, expected, map(json.loads, output.stdout.splitlines())):
        if not result["compiled"]:
            print(f"refused: {line['grammar']!r}: {result['error']}")
            wrong += 1
            continue
        for text, theirs, ours in zip(line["texts"], accepts, result["accepts"]):
            if theirs != ours:
                print(f"{line['grammar']!r}: llama.cpp {'accepts' if theirs else 'rejects'} {text!r}")
                wrong += 1
    texts = sum(map(len, expected))
    print(f"{len(CASES)} grammars, {texts} texts, of which llama.cpp accepts {sum(map(sum, expected))}: {wrong} differ")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
