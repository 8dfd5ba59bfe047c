"""Tests with Instructor: instructor_client.py BASE_URL MODEL.

It has its own Python environment, because Instructor needs an older openai than the other tests.
"""

import asyncio
import sys
import typing
import unittest

import instructor
import openai
from instructor.core import IncompleteOutputException, InstructorRetryException
from instructor.dsl.iterable import IterableModel
from pydantic import field_validator

from client_schemas import MAX_TOKENS, SAMPLINGS, TEXT, Animal, People, Person

MODEL = sys.argv.pop()
BASE = sys.argv.pop()
Mode = instructor.Mode
MODES = (Mode.TOOLS, Mode.JSON, Mode.JSON_SCHEMA)
TWO = "Ann is 30 years old, and Bob is 40."


def schema_of(kind):
    """Returns request fields with the schema of `kind`, for modes in which Instructor does not send
    the schema."""
    return {"extra_body": {"response_format": {"type": "json_object",
                                               "schema": kind.model_json_schema()}}}


def ask(mode, kind, text=TEXT, **fields):
    fields = {"model": MODEL, "max_tokens": MAX_TOKENS, "temperature": 0, "max_retries": 0,
              "messages": [{"role": "user", "content": text}]} | fields
    return fields | (schema_of(kind) if mode is Mode.JSON else {})


class InstructorTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.openai = openai.OpenAI(base_url=BASE, api_key="unused", max_retries=0, timeout=600)
        cls.addClassCleanup(cls.openai.close)

    def client(self, mode):
        return instructor.from_openai(self.openai, mode=mode)

    def test_objects(self):
        for mode in MODES:
            for sampling in SAMPLINGS:
                animal, completion = self.client(mode).create_with_completion(
                    response_model=Animal, **ask(mode, Animal, **sampling))
                self.assertIsInstance(animal, Animal)
                self.assertEqual(completion.choices[0].finish_reason,
                                 "tool_calls" if mode is Mode.TOOLS else "stop")

    def test_objects_asynchronously(self):
        async def all_of(mode):
            async with openai.AsyncOpenAI(base_url=BASE, api_key="unused", max_retries=0) as one:
                client = instructor.from_openai(one, mode=mode)
                return await asyncio.gather(*[client.create(
                    response_model=Person, **ask(mode, Person, **sampling)) for sampling in SAMPLINGS])

        for mode in MODES:
            for person in asyncio.run(all_of(mode)):
                self.assertIsInstance(person, Person)

    def test_partial_objects_stream(self):
        for mode in MODES:
            for kind in (Person, People):
                pieces = list(self.client(mode).create_partial(
                    response_model=kind, **ask(mode, kind, TWO)))
                self.assertGreater(len(pieces), 5)
                lengths = [len(piece.model_dump_json(exclude_none=True)) for piece in pieces]
                self.assertEqual(lengths[-1], max(lengths))
                self.assertIsInstance(kind.model_validate(pieces[-1].model_dump()), kind)

    def test_objects_stream_one_by_one(self):
        # Instructor's own schema does not require the list, and allows any other property.
        schema = IterableModel(Person).model_json_schema()
        schema |= {"required": ["tasks"], "additionalProperties": False}
        schema["properties"]["tasks"] |= {"minItems": 2, "maxItems": 3}
        function = {"name": "IterablePerson", "parameters": schema}
        for mode in MODES:
            fields = ask(mode, Person, TWO)
            if mode is Mode.TOOLS:
                fields["extra_body"] = {"tools": [{"type": "function", "function": function}]}
            else:
                fields["extra_body"] = {"response_format": {"type": "json_object", "schema": schema}}
            people = list(self.client(mode).create_iterable(response_model=Person, **fields))
            self.assertIn(len(people), (2, 3))
            self.assertEqual({type(person) for person in people}, {Person})
            people = self.client(mode).create(response_model=list[Person], **fields)
            self.assertIn(len(people), (2, 3))

    def test_the_limit_of_tokens_is_reported(self):
        for mode in MODES:
            with self.assertRaises(IncompleteOutputException) as cut:
                self.client(mode).create(response_model=Animal, **ask(mode, Animal, max_tokens=5))
            self.assertEqual(cut.exception.last_completion.usage.completion_tokens, 5)

    def test_a_refused_object_is_asked_for_again(self):
        class Checked(Person):
            refusals: typing.ClassVar[int] = 0

            @field_validator("age")
            @classmethod
            def refuse_once(cls, age):
                if cls.refusals == 0:
                    Checked.refusals = 1
                    raise ValueError("the age is refused once")
                return age

        for mode in MODES:
            Checked.refusals = 0
            sent = []
            client = self.client(mode)
            client.on("completion:kwargs", lambda **fields: sent.append(list(fields["messages"])))
            person = client.create(response_model=Checked, **ask(mode, Checked, TWO, max_retries=2))
            self.assertIsInstance(person, Checked)
            self.assertEqual(len(sent), 2)
            self.assertIn("refused once", str(sent[1][-1]))
            self.assertEqual(sent[1][-1]["role"], "tool" if mode is Mode.TOOLS else "user")

    def test_json_mode_alone_returns_any_object(self):
        for sampling in SAMPLINGS:
            fields = ask(Mode.JSON, Animal, max_tokens=300, **sampling) | {"extra_body": None}
            try:
                animal = self.client(Mode.JSON).create(response_model=Animal, **fields)
                self.assertIsInstance(animal, Animal)
            except IncompleteOutputException:
                pass
            except InstructorRetryException as error:
                self.assertRegex(str(error), "validation errors? for Animal")


if __name__ == "__main__":
    unittest.main()
