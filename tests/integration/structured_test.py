"""Constrained output with real clients: OpenAI's, and gRPC."""

import json
import unittest

import openai

import harness
from harness import Client

HI = [{"role": "user", "content": "hi"}]
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "kind": {"enum": ["cat", "dog"]},
        "legs": {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 4},
    },
    "required": ["name", "kind", "legs"],
    "additionalProperties": False,
}


def check(test, text):
    value = json.loads(text)
    test.assertEqual(set(value), {"name", "kind", "legs"}, text)
    test.assertLessEqual(len(value["name"]), 8)
    test.assertIn(value["kind"], ["cat", "dog"])
    test.assertTrue(2 <= len(value["legs"]) <= 4 and all(leg in (True, False) for leg in value["legs"]))


class StructuredTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.server = harness.serve()
        cls.addClassCleanup(cls.server.stop)
        cls.grpc = Client(cls.server)
        cls.client = openai.OpenAI(base_url=f"http://{cls.server.http_address}/v1", api_key="unused",
                                   max_retries=0, timeout=120,
                                   http_client=openai.DefaultHttpxClient(trust_env=False))
        cls.model = cls.client.models.list().data[0].id

    def complete(self, **fields):
        return self.client.completions.create(model=self.model, prompt="The", max_tokens=300,
                                              temperature=1.5, **fields)

    def test_every_finished_response_is_valid(self):
        finished = 0
        for seed in range(20):
            choice = self.complete(seed=seed, extra_body={"response_format": {
                "type": "json_schema",
                "json_schema": {"name": "animal", "strict": True, "schema": SCHEMA}}}).choices[0]
            if choice.finish_reason == "stop":
                finished += 1
                check(self, choice.text)
        self.assertGreater(finished, 10)

    def test_every_form_of_constraint(self):
        self.assertRegex(self.complete(extra_body={"structured_outputs": {"regex": "[a-c]{4}!"}})
                         .choices[0].text, r"^[a-c]{4}!$")
        self.assertIn(self.complete(extra_body={"structured_outputs": {"choice": ["red", "blue"]}})
                      .choices[0].text, ["red", "blue"])
        self.assertRegex(self.complete(extra_body={"grammar": 'root ::= "<" [0-9]{3} ">"'})
                         .choices[0].text, r"^<\d{3}>$")
        self.assertIn(self.complete(extra_body={"json_schema": {"type": "boolean"}})
                      .choices[0].text, ["true", "false"])

    def test_grpc_streams_and_resumes(self):
        def tokens(**more):
            request = harness.make_request(text="The", max_tokens=300, temperature=1.5, seed=3)
            request.json_schema = json.dumps(SCHEMA)
            for name, value in more.items():
                setattr(request, name, value)
            stream = self.grpc.inference.Generate(request, timeout=120)
            return [token for message in stream for token in message.token_ids]
        whole = tokens(request_id="structured-1")
        self.assertEqual(tokens(request_id="structured-1", resume_after=4), whole[4:])

    def test_errors_name_the_place(self):
        with self.assertRaises(openai.BadRequestError) as refused:
            self.complete(extra_body={"json_schema": {"items": {"uniqueItems": True}}})
        self.assertRegex(str(refused.exception), r'/items.*uniqueItems')
        with self.assertRaises(openai.BadRequestError) as twice:
            self.complete(extra_body={"grammar": 'root ::= "a"', "json_schema": {}})
        self.assertIn("second constraint", str(twice.exception))


if __name__ == "__main__":
    unittest.main()
