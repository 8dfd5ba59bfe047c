"""The command `grammar`: what it accepts is compared with Python's re."""

import base64
import itertools
import json
import pathlib
import random
import re
import unittest
import uuid
from ipaddress import IPv4Interface, IPv6Interface

import pydantic

import harness
from command_test_case import CommandTest

SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
          "required": ["name"], "additionalProperties": False}
# Patterns in the syntax that Python and ECMAScript share.
PATTERNS = ["a*b", "(a|b)*c", "a(b|c){1,2}", "[ab]+c?", "[^a]b*", "a{2}|b{0,2}c", "(ab|a)(bc|c)?",
            "^a.c$", "(?:a|b)(?:b|c)+?", "(a?b?){2}c", "a||b", "[a-b]{2,3}|c+", r"\w\W?", r"[\d\s]*a"]

# Types for which pydantic writes a `format` into the schema, with some values.
FORMATTED = {
    pathlib.Path: ["", "/etc/hosts"],
    pydantic.UUID1: [str(uuid.uuid1())],
    pydantic.UUID3: [str(uuid.uuid3(uuid.NAMESPACE_DNS, "a"))],
    pydantic.UUID4: [str(uuid.uuid4()), str(uuid.uuid4()).upper()],
    pydantic.UUID5: [str(uuid.uuid5(uuid.NAMESPACE_DNS, "a"))],
    pydantic.UUID6: ["1ec9414c-232a-6b00-b3c8-9f6bdeced846"],
    pydantic.UUID7: ["017f22e2-79b0-7cc3-98c4-dc0c0c07398f"],
    pydantic.UUID8: ["2489e9ad-2ee2-8e00-8ec9-32d5f69181c0"],
    pydantic.Base64Bytes: [base64.b64encode(bytes(range(200, 200 + size))).decode() for size in range(5)],
    pydantic.Base64UrlBytes: [base64.urlsafe_b64encode(bytes(range(200, 200 + size))).decode() for size in range(5)],
    IPv4Interface: ["1.2.3.4", "255.0.10.199/0", "10.0.0.1/32"],
    IPv6Interface: ["::", "2001:db8::1:2/128", "::ffff:1.2.3.4/99"],
    pydantic.IPvAnyAddress: ["1.2.3.4", "::1"],
    pydantic.IPvAnyInterface: ["1.2.3.4/31", "1::/7", "::"],
}


class GrammarCommandTest(CommandTest):

    def setUp(self):
        self.folder = harness.scratch_folder()

    def file(self, name, content):
        path = self.folder / name
        path.write_text(content)
        return path

    def batch(self, lines, *arguments):
        file = self.file("batch.jsonl", "\n".join(json.dumps(line) for line in lines))
        output = self.run_well("grammar", "--batch", file, "--json", *arguments).stdout
        results = [json.loads(line) for line in output.splitlines()]
        self.assertEqual(len(results), len(lines))
        return results

    def test_says_where_a_text_fails(self):
        schema = self.file("schema.json", json.dumps(SCHEMA))
        good = self.run_json("grammar", "--schema", schema, "--text", '{"name": "x", "age": 3}')
        self.assertEqual((good["compiled"], good["accepts"], good["fails_at"]), (True, [True], [None]))
        bad = self.run_json("grammar", "--schema", schema, "--text", '{"name": 1}')
        self.assertEqual((bad["accepts"], bad["fails_at"]), ([False], [9]))
        text = self.run_well("grammar", "--schema", schema, "--text", '{"name": 1}').stdout
        self.assertIn("rejected at byte 9", text)
        text = self.run_well("grammar", "--schema", schema, "--text", '{"name": "').stdout
        self.assertIn("incomplete after byte 10", text)
        grammar = self.file("list.gbnf", 'root ::= "x" ("," root)?')
        self.assertIn("accepted", self.run_well("grammar", "--grammar", grammar, "--text", "x,x").stdout)
        self.assertIn("accepted", self.run_well("grammar", "--regex", "a{2}", "--text", "aa").stdout)

    def test_refusals(self):
        schema = self.file("unique.json", json.dumps({"items": {"uniqueItems": True}}))
        self.refuse("grammar", "--schema", schema, named=('"/items"', "uniqueItems"))
        self.refuse("grammar", "--regex", "(a)\\1", named="back-references")
        self.refuse("grammar", named=("--schema", "--batch"))
        self.refuse("grammar", "--regex", "a", "--schema", schema, named="exactly one")
        self.refuse("grammar", "--schema", self.folder / "none.json", named="none.json")

    def test_a_batch_has_a_result_for_each_line(self):
        results = self.batch([
            {"schema": {"enum": ["a", 1]}, "texts": ['"a"', "1", "2"]},
            {"regex": "x+", "texts": []},
            {"grammar": "root ::= nothing", "texts": ["a"]},
            {"choice": ["yes", "no"], "texts": ["yes", "maybe"]},
            {"schema": {}, "regex": "a"},
            {"texts": ["a"]},
        ], "--model", harness.LLAMA)
        self.assertEqual([result["compiled"] for result in results],
                         [True, True, False, True, False, False])
        self.assertEqual(results[0]["accepts"], [True, True, False])
        self.assertEqual(results[3]["accepts"], [True, False])
        self.assertIn("nothing", results[2]["error"])
        self.assertGreater(results[0]["compile_ms"], 0)
        self.assertEqual(set(results[0]["mask_us"]), {"avg", "p50", "p99", "max"})
        self.assertNotIn("mask_us", results[1])
        table = self.run_well("grammar", "--batch", self.folder / "batch.jsonl").stdout
        self.assertIn("refused", table)

    def test_patterns_match_like_python(self):
        texts = ["".join(letters) for size in range(5)
                 for letters in itertools.product("abc", repeat=size)] + ["1a", " a", "b ", "_-"]
        results = self.batch([{"regex": pattern, "texts": texts} for pattern in PATTERNS])
        for pattern, result in zip(PATTERNS, results):
            expected = [re.fullmatch(pattern, text, re.ASCII) is not None for text in texts]
            self.assertEqual(result["accepts"], expected, pattern)
        # In a schema, the same patterns need to match only a part of the string.
        results = self.batch([{"schema": {"type": "string", "pattern": pattern},
                               "texts": [json.dumps(text) for text in texts]} for pattern in PATTERNS])
        for pattern, result in zip(PATTERNS, results):
            expected = [re.search(pattern, text, re.ASCII) is not None for text in texts]
            self.assertEqual(result["accepts"], expected, pattern)

    def test_formats_of_pydantic_accept_the_same_as_pydantic(self):
        draw = random.Random(1)
        lines = []
        for known, values in FORMATTED.items():
            texts = list(values)
            for _ in range(300):
                text = list(draw.choice(values))
                at = draw.randrange(len(text) + 1)
                text[at:at + draw.choice((0, 1, 1, 2))] = draw.choices("01359aAfgQ/.:-=+_", k=draw.randrange(3))
                texts.append("".join(text))
            lines.append({"schema": pydantic.TypeAdapter(known).json_schema(), "texts": list(map(json.dumps, texts))})
        for known, line, result in zip(FORMATTED, lines, self.batch(lines)):
            self.assertTrue(result["compiled"], result)
            values = len(FORMATTED[known])
            self.assertEqual(result["accepts"][:values], [True] * values, known)
            for text, accepts in zip(line["texts"], result["accepts"]):
                if accepts:
                    pydantic.TypeAdapter(known).validate_json(text)

    def test_a_choice_is_a_set_of_texts(self):
        choices = ["", "a", "abc", "b\u00e9", "\U0001F600", "a b"]
        texts = choices + ["ab", "b", "a b ", "\u00e9"]
        result, = self.batch([{"choice": choices, "texts": texts}])
        self.assertEqual(result["accepts"], [text in choices for text in texts])


if __name__ == "__main__":
    unittest.main()
