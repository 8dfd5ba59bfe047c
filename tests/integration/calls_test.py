"""Tool calls and objects that the server constrains, with SmolLM2 at a high temperature.

    calls_test.py [SEEDS]

The model's template has no tools, and the model is small. So only the constraint makes the
responses valid.
"""

import concurrent.futures
import json
import re
import sys
import unittest

import jsonschema
import openai

import harness
from harness import Client, Received, inference_pb

SEEDS = int(sys.argv.pop(1)) if len(sys.argv) > 1 else 50
HI = [{"role": "user", "content": "What is the weather in Paris and in Rome?"}]
SCHEMAS = {
    "weather": {
        "type": "object",
        "properties": {
            "city": {"type": "string", "maxLength": 20},
            "unit": {"enum": ["C", "F"]},
            "days": {"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 7},
                     "minItems": 1, "maxItems": 3},
        },
        "required": ["city", "unit", "days"],
        "additionalProperties": False,
    },
    "alarm": {
        "type": "object",
        "properties": {"at": {"type": "string", "pattern": "^[0-2][0-9]:[0-5][0-9]$"},
                       "loud": {"type": "boolean"}},
        "required": ["at"],
        "additionalProperties": False,
    },
    "story": {
        "type": "object",
        "properties": {"text": {"type": "string", "minLength": 1200, "maxLength": 1300}},
        "required": ["text"],
        "additionalProperties": False,
    },
}
TOOLS = [{"type": "function", "function": {"name": name, "description": f"The tool {name}.",
                                           "parameters": schema}}
         for name, schema in SCHEMAS.items()]
SHORT = TOOLS[:2]
# All kinds of values, with references, optional properties and a choice.
BOOKING = {
    "type": "object",
    "properties": {
        "id": {"type": "string", "pattern": "^[A-Z]{3}-[0-9]{4}$"},
        "date": {"type": "string", "format": "date"},
        "guests": {"type": "array", "items": {"$ref": "#/$defs/guest"}, "minItems": 1, "maxItems": 3},
        "price": {"type": "number", "minimum": 0, "exclusiveMaximum": 1000},
        "note": {"type": ["string", "null"], "maxLength": 40},
    },
    "required": ["id", "guests", "price"],
    "additionalProperties": False,
    "$defs": {"guest": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 1, "maxLength": 20},
            "bed": {"oneOf": [{"enum": ["single", "double"]}, {"type": "integer", "minimum": 1, "maximum": 2}]},
            "child": {"type": "boolean"},
        },
        "required": ["name", "bed"],
        "additionalProperties": False,
    }},
}
CALL = re.compile(r'<tool_call>\n\{"name": "(\w+)", "arguments": (.*)\}\n</tool_call>', re.DOTALL)


def check(test, name, arguments):
    test.assertIn(name, SCHEMAS)
    jsonschema.Draft202012Validator(SCHEMAS[name]).validate(json.loads(arguments))


def named(name):
    return {"type": "function", "function": {"name": name}}


class CallsTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.server = harness.serve(model=harness.smollm2(), threads=2)
        cls.addClassCleanup(cls.server.stop)
        cls.client = openai.OpenAI(base_url=f"http://{cls.server.http_address}/v1", api_key="unused",
                                   max_retries=0, timeout=300,
                                   http_client=openai.DefaultHttpxClient(trust_env=False))
        cls.model = cls.client.models.list().data[0].id

    def chat(self, **fields):
        fields = {"model": self.model, "messages": HI, "max_tokens": 400, "temperature": 1.5,
                  "tools": SHORT, "tool_choice": "required"} | fields
        fields = {name: value for name, value in fields.items() if value is not None}
        return self.client.chat.completions.create(**fields).choices[0]

    def finished(self, fields_of):
        """Sends a request for each of SEEDS seeds, with the fields that `fields_of(seed)` returns.
        Returns the choices that finish."""
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            choices = list(pool.map(lambda seed: self.chat(seed=seed, **fields_of(seed)), range(SEEDS)))
        finished = [choice for choice in choices if choice.finish_reason != "length"]
        print(f"{len(finished)} of {SEEDS} responses finished", flush=True)
        self.assertGreater(len(finished), SEEDS // 4)
        return finished

    def test_every_finished_response_has_valid_calls(self):
        for choice in self.finished(lambda seed: {"parallel_tool_calls": seed % 2 == 0}):
            self.assertEqual(choice.finish_reason, "tool_calls", choice)
            self.assertFalse(choice.message.content, choice)
            self.assertTrue(choice.message.tool_calls)
            for call in choice.message.tool_calls:
                check(self, call.function.name, call.function.arguments)

    def test_every_finished_response_matches_its_schema(self):
        valid = jsonschema.Draft202012Validator(
            BOOKING, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
        for choice in self.finished(lambda seed: {
                "tools": None, "tool_choice": None, "response_format": {
                    "type": "json_schema", "json_schema": {"name": "booking", "schema": BOOKING}}}):
            self.assertEqual(choice.finish_reason, "stop", choice)
            valid.validate(json.loads(choice.message.content))

    def test_only_the_chosen_tools_are_called(self):
        for seed in range(4):
            calls = self.chat(seed=seed, tool_choice=named("alarm")).message.tool_calls
            self.assertEqual([call.function.name for call in calls], ["alarm"])
            allowed = {"type": "allowed_tools", "allowed_tools": {
                "mode": "required", "tools": [named("weather")]}}
            choice = self.chat(seed=seed, tool_choice=allowed, parallel_tool_calls=False)
            self.assertEqual([call.function.name for call in choice.message.tool_calls], ["weather"])
            check(self, "weather", choice.message.tool_calls[0].function.arguments)

    def test_the_stream_is_equal(self):
        whole = self.chat(seed=5)
        arguments = {}
        for chunk in self.client.chat.completions.create(
                model=self.model, messages=HI, max_tokens=400, temperature=1.5, tools=SHORT,
                tool_choice="required", seed=5, stream=True):
            for delta in chunk.choices[0].delta.tool_calls or [] if chunk.choices else []:
                arguments.setdefault(delta.index, "")
                arguments[delta.index] += delta.function.arguments or ""
        self.assertEqual(list(arguments.values()),
                         [call.function.arguments for call in whole.message.tool_calls])

    def test_response_format_and_calls(self):
        color = {"type": "json_schema", "json_schema": {"name": "color", "schema": {
            "type": "object", "properties": {"color": {"enum": ["red", "blue"]}},
            "required": ["color"], "additionalProperties": False}}}
        # A required call leaves no content that could have a format.
        self.assertTrue(self.chat(seed=1, response_format=color).message.tool_calls)
        for seed in range(6):
            choice = self.chat(seed=seed, tool_choice="auto", response_format=color)
            if choice.message.tool_calls:
                self.assertFalse(choice.message.content)
            else:
                self.assertIn(json.loads(choice.message.content)["color"], ["red", "blue"])

    def test_refusals(self):
        for fields, words in [
                ({"tools": None}, "needs tools"),
                ({"tool_choice": named("wind")}, "wind"),
                ({"tool_choice": {"type": "allowed_tools", "allowed_tools": {
                    "mode": "any", "tools": [named("alarm")]}}}, "mode"),
                ({"tools": [{"type": "function", "function": {
                    "name": "f", "parameters": {"items": {"uniqueItems": True}, "type": "array"}}}]},
                 r"tools\[0\]\.function\.parameters"),
                ({"extra_body": {"thinking_budget_tokens": 5}}, "thinking_budget_tokens")]:
            with self.assertRaises(openai.BadRequestError) as refused:
                self.chat(**fields)
            self.assertRegex(str(refused.exception), words)


class FailoverTest(unittest.TestCase):

    def test_a_call_continues_on_another_worker(self):
        workers = [harness.worker("--name", name, model=harness.smollm2()) for name in ("a", "b")]
        front = harness.front(workers)
        for process in workers + [front]:
            self.addCleanup(process.kill)
        client = Client(front)
        self.addCleanup(client.close)
        request = harness.make_request(chat=[("user", "Tell a story.")], max_tokens=900,
                                       temperature=1.5, seed=11)
        request.chat.tools_json = json.dumps(TOOLS)
        request.chat.tool_choice.mode = inference_pb.ToolChoice.REQUIRED
        request.chat.tool_choice.names.append("story")
        request.chat.parallel_tool_calls = False

        def answer(kill_after=None):
            received = Received()
            for message in client.inference.Generate(request, timeout=300):
                received.take(message)
                if kill_after is not None and len(received.ids) >= kill_after:
                    kill_after = None
                    busy = [stats.worker_id for stats in client.stats().workers
                            if stats.sequences_running]
                    for name in busy:
                        workers["ab".index(name)].kill()
            return received.answer()

        calm = answer()
        name, arguments = CALL.fullmatch(calm.text).groups()
        self.assertEqual(name, "story")
        check(self, name, arguments)
        broken = answer(kill_after=60)
        self.assertEqual(broken.text, calm.text)
        self.assertEqual(broken.ids, calm.ids)
        self.assertEqual(client.stats().front.failovers_total, 1)


if __name__ == "__main__":
    unittest.main()
