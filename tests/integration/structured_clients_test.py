"""The helpers of client libraries that return validated objects: openai's parse() and stream(),
LangChain's with_structured_output() and bind_tools(), and Instructor (instructor_client.py).

The model is small, so nothing but the constraints makes the responses valid.
"""

import asyncio
import json
import os
import pathlib
import subprocess
import typing
import unittest

import openai
from langchain_core.exceptions import OutputParserException
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

import harness
from client_schemas import MAX_TOKENS, QUESTION, SAMPLINGS, TEXT, Animal, Closed, Weather

HERE = pathlib.Path(__file__).parent
SAY = [{"role": "user", "content": TEXT}]
ASK = [{"role": "user", "content": QUESTION}]
METHODS = ("json_schema", "function_calling", "json_mode")
CUT = 5  # tokens, too few for an object


class ServerTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        for name in list(os.environ):
            if name.lower().endswith("_proxy"):
                del os.environ[name]  # the clients would use these proxies for 127.0.0.1
        cls.server = harness.serve(model=harness.smollm2(), threads=2)
        cls.addClassCleanup(cls.server.stop)
        cls.base = f"http://{cls.server.http_address}/v1"
        cls.client = openai.OpenAI(base_url=cls.base, api_key="unused", max_retries=0, timeout=600)
        cls.model = cls.client.models.list().data[0].id


class OpenAiTest(ServerTest):

    def parse(self, **fields):
        fields = {"model": self.model, "messages": SAY, "max_tokens": MAX_TOKENS,
                  "temperature": 0} | fields
        return self.client.chat.completions.parse(**fields)

    def stream(self, **fields):
        """Returns the events of a stream by their types, and the final completion."""
        fields = {"model": self.model, "messages": SAY, "max_tokens": MAX_TOKENS,
                  "temperature": 0, "stream_options": {"include_usage": True}} | fields
        events = {}
        with self.client.chat.completions.stream(**fields) as stream:
            for event in stream:
                events.setdefault(event.type, []).append(event)
            return events, stream.get_final_completion()

    def test_parse_returns_objects(self):
        for sampling in SAMPLINGS:
            choice = self.parse(response_format=Animal, **sampling).choices[0]
            self.assertEqual(choice.finish_reason, "stop")
            self.assertIsInstance(choice.message.parsed, Animal)
            self.assertEqual(choice.message.parsed, Animal.model_validate_json(choice.message.content))

    def test_parsed_messages_are_sent_back(self):
        message = self.parse(response_format=Animal).choices[0].message
        turns = SAY + [message, {"role": "user", "content": "And again."}]
        again = self.parse(messages=turns, response_format=Animal).choices[0].message
        self.assertIsInstance(again.parsed, Animal)

    def test_parse_returns_objects_of_each_choice(self):
        choices = self.parse(response_format=Animal, n=3, temperature=1.5, seed=1).choices
        self.assertEqual([type(choice.message.parsed) for choice in choices], [Animal] * 3)

    def test_parse_asynchronously(self):
        async def ask():
            async with openai.AsyncOpenAI(base_url=self.base, api_key="unused",
                                          max_retries=0) as client:
                return await asyncio.gather(*[client.chat.completions.parse(
                    model=self.model, messages=SAY, response_format=Animal, max_tokens=MAX_TOKENS,
                    **sampling) for sampling in SAMPLINGS])

        for completion in asyncio.run(ask()):
            self.assertIsInstance(completion.choices[0].message.parsed, Animal)

    def test_parse_returns_arguments_of_tools(self):
        tools = [openai.pydantic_function_tool(kind) for kind in (Animal, Weather)]
        for sampling in SAMPLINGS:
            choice = self.parse(messages=ASK, tools=tools, tool_choice="required",
                                parallel_tool_calls=False, **sampling).choices[0]
            self.assertEqual(choice.finish_reason, "tool_calls")
            [call] = choice.message.tool_calls
            self.assertIsInstance(call.function.parsed_arguments, (Animal, Weather))
            self.assertEqual(type(call.function.parsed_arguments).__name__, call.function.name)
        # The server accepts the client's own message object with all its fields.
        turns = ASK + [choice.message, {"role": "tool", "tool_call_id": call.id, "content": "Rain"}]
        answer = self.client.chat.completions.create(
            model=self.model, messages=turns, tools=tools, tool_choice="none", max_tokens=CUT,
            temperature=0).choices[0].message
        self.assertTrue(answer.content)
        self.assertIsNone(answer.tool_calls)

    def test_parse_with_tools_and_a_format(self):
        for sampling in SAMPLINGS:
            message = self.parse(response_format=Animal, parallel_tool_calls=False,
                                 tools=[openai.pydantic_function_tool(Weather)],
                                 **sampling).choices[0].message
            if message.tool_calls:
                self.assertIsInstance(message.tool_calls[0].function.parsed_arguments, Weather)
            else:
                self.assertIsInstance(message.parsed, Animal)

    def test_parse_reports_the_limit_of_tokens(self):
        weather = [openai.pydantic_function_tool(Weather)]
        for fields in ({"response_format": Animal}, {"tools": weather, "tool_choice": "required"}):
            with self.assertRaises(openai.LengthFinishReasonError) as cut:
                self.parse(max_tokens=CUT, **fields)
            self.assertEqual(cut.exception.completion.usage.completion_tokens, CUT)
            with self.assertRaises(openai.LengthFinishReasonError):
                self.stream(max_tokens=CUT, **fields)

    def test_parse_reports_schemas_that_cannot_be_enforced(self):
        class Numbers(Closed):
            numbers: typing.Set[int]

        with self.assertRaises(openai.BadRequestError) as refused:
            self.parse(response_format=Numbers)
        self.assertRegex(str(refused.exception), r'at "/properties/numbers".*uniqueItems')

    def test_stream_of_an_object(self):
        for sampling in SAMPLINGS:
            whole = self.parse(response_format=Animal, **sampling)
            events, final = self.stream(response_format=Animal, **sampling)
            content = whole.choices[0].message.content
            self.assertEqual(set(events), {"chunk", "content.delta", "content.done"})
            deltas = events["content.delta"]
            self.assertGreater(len(deltas), 5)
            self.assertEqual("".join(event.delta for event in deltas), content)
            for event in deltas:
                self.assertTrue(content.startswith(event.snapshot))
            self.assertEqual(deltas[-1].parsed, json.loads(content))
            [done] = events["content.done"]
            self.assertEqual((done.content, done.parsed), (content, whole.choices[0].message.parsed))
            self.assertEqual(final.choices[0].message.parsed, done.parsed)
            self.assertEqual(final.choices[0].finish_reason, "stop")
            self.assertEqual(final.usage.completion_tokens, whole.usage.completion_tokens)

    def test_stream_of_arguments(self):
        for sampling in SAMPLINGS:
            fields = {"messages": ASK, "tools": [openai.pydantic_function_tool(Weather)],
                      "tool_choice": "required", "parallel_tool_calls": False, **sampling}
            [whole] = self.parse(**fields).choices[0].message.tool_calls
            events, final = self.stream(**fields)
            deltas = events["tool_calls.function.arguments.delta"]
            self.assertGreater(len(deltas), 3)
            self.assertEqual("".join(event.arguments_delta for event in deltas),
                             whole.function.arguments)
            [done] = events["tool_calls.function.arguments.done"]
            self.assertEqual((done.name, done.index), ("Weather", 0))
            self.assertIsInstance(done.parsed_arguments, Weather)
            self.assertEqual(done.parsed_arguments, whole.function.parsed_arguments)
            [call] = final.choices[0].message.tool_calls
            self.assertEqual(call.function.parsed_arguments, done.parsed_arguments)
            self.assertEqual(final.choices[0].finish_reason, "tool_calls")


@tool
def weather(city: typing.Literal["Paris", "Rome"], days: typing.Literal[1, 7]) -> str:
    """Returns the weather of a city."""
    return f"{city}: rain for {days} days"


class LangChainTest(ServerTest):

    def chat(self, **fields):
        fields = {"max_tokens": MAX_TOKENS, "temperature": 0} | fields
        return ChatOpenAI(model=self.model, base_url=self.base, api_key="unused", max_retries=0,
                          **fields)

    def test_structured_output_is_an_object(self):
        for method in ("json_schema", "function_calling"):
            for sampling in SAMPLINGS:
                chat = self.chat(**sampling).with_structured_output(Animal, method=method)
                self.assertIsInstance(chat.invoke(TEXT), Animal, (method, sampling))
            strict = self.chat().with_structured_output(Animal, method=method, strict=True)
            self.assertIsInstance(strict.invoke(TEXT), Animal)
            self.assertEqual([type(one) for one in strict.batch([TEXT, TEXT])], [Animal] * 2)
            raw = self.chat().with_structured_output(Animal, method=method, include_raw=True)
            answer = raw.invoke(TEXT)
            self.assertIsInstance(answer["parsed"], Animal)
            self.assertIsNone(answer["parsing_error"])
            self.assertLess(answer["raw"].usage_metadata["output_tokens"], MAX_TOKENS)

    def test_structured_output_asynchronously(self):
        async def ask():
            return await asyncio.gather(*[
                self.chat(**sampling).with_structured_output(Animal, method=method).ainvoke(TEXT)
                for method in ("json_schema", "function_calling") for sampling in SAMPLINGS])

        for animal in asyncio.run(ask()):
            self.assertIsInstance(animal, Animal)

    def test_structured_output_of_a_json_schema(self):
        schema = Animal.model_json_schema()
        for method in ("json_schema", "function_calling"):
            answer = self.chat().with_structured_output(schema, method=method).invoke(TEXT)
            self.assertIsInstance(answer, dict)
            Animal.model_validate(answer)

    def test_json_mode_returns_any_object(self):
        answer = self.chat(max_tokens=300).with_structured_output(
            method="json_mode", schema=None).invoke(TEXT + " Answer as JSON.")
        self.assertIsInstance(answer, dict)
        for sampling in SAMPLINGS:
            raw = self.chat(**sampling, max_tokens=300).with_structured_output(
                Animal, method="json_mode", include_raw=True)
            try:
                answer = raw.invoke(TEXT)
            except openai.LengthFinishReasonError:
                continue
            # The library checks the object itself, so the response need not match the schema.
            self.assertIsInstance(json.loads(answer["raw"].content), dict)
            if answer["parsing_error"] is None:
                self.assertIsInstance(answer["parsed"], Animal)
            else:
                self.assertIsInstance(answer["parsing_error"], OutputParserException)

    def test_json_mode_with_the_schema_in_the_request(self):
        form = {"type": "json_object", "schema": Animal.model_json_schema()}
        for sampling in SAMPLINGS:
            chat = self.chat(extra_body={"response_format": form}, **sampling)
            self.assertIsInstance(
                chat.with_structured_output(Animal, method="json_mode").invoke(TEXT), Animal)

    def test_structured_output_reports_the_limit_of_tokens(self):
        for method in METHODS:
            chat = self.chat(max_tokens=CUT).with_structured_output(Animal, method=method)
            if method == "function_calling":
                self.assertIsNone(chat.invoke(TEXT))  # as for a model that calls no tool
            else:
                with self.assertRaises(openai.LengthFinishReasonError):
                    chat.invoke(TEXT)

    def test_structured_output_streams(self):
        for method in ("json_schema", "function_calling"):
            chat = self.chat().with_structured_output(Animal.model_json_schema(), method=method)
            pieces = list(chat.stream(TEXT))
            self.assertGreater(len(pieces), 3, method)
            sizes = [len(json.dumps(piece)) for piece in pieces]
            self.assertEqual(sizes, sorted(sizes), pieces)
            self.assertIsInstance(Animal.model_validate(pieces[-1]), Animal)
            *_, last = self.chat().with_structured_output(Animal, method=method).stream(TEXT)
            self.assertIsInstance(last, Animal)

    def test_tools_are_called(self):
        choices = {"required": ("weather", "Weather"), "any": ("weather", "Weather"),
                   "weather": ("weather",), "Weather": ("Weather",)}
        for choice, names in choices.items():
            chat = self.chat(temperature=1.5, seed=2).bind_tools(
                [weather, Weather], tool_choice=choice, strict=True, parallel_tool_calls=False)
            answer = chat.invoke(QUESTION)
            self.assertEqual(answer.invalid_tool_calls, [])
            [call] = answer.tool_calls
            self.assertIn(call["name"], names)
            kind = weather.args_schema if call["name"] == "weather" else Weather
            self.assertIsInstance(kind.model_validate(call["args"]), kind)
            self.assertEqual(answer.response_metadata["finish_reason"], "tool_calls")

    def test_a_tool_call_streams(self):
        chat = self.chat().bind_tools([Weather], tool_choice="Weather")
        chunks = list(chat.stream(QUESTION))
        self.assertGreater(len(chunks), 5)
        whole = chunks[0]
        for chunk in chunks[1:]:
            whole += chunk
        [call] = whole.tool_calls
        self.assertEqual(call["args"], chat.invoke(QUESTION).tool_calls[0]["args"])
        self.assertIsInstance(Weather.model_validate(call["args"]), Weather)

    def test_results_of_tools_are_sent_back(self):
        turns = [HumanMessage(QUESTION)]
        turns.append(self.chat().bind_tools(
            [weather], tool_choice="weather", strict=True).invoke(turns))
        turns += [weather.invoke(call) for call in turns[-1].tool_calls]
        self.assertRegex(turns[-1].content, r"^(Paris|Rome): rain for [17] days$")
        answer = self.chat(max_tokens=12).bind_tools([weather], tool_choice="none").invoke(turns)
        self.assertTrue(answer.content)
        self.assertEqual(answer.tool_calls, [])


class InstructorTest(ServerTest):

    def test_instructor(self):
        result = subprocess.run(
            [os.environ["TIDEPOOL_INSTRUCTOR_PYTHON"], str(HERE / "instructor_client.py"),
             self.base, self.model],
            capture_output=True, text=True, timeout=800, env=harness.clean_environment())
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stderr, r"Ran [1-9]\d* tests")


if __name__ == "__main__":
    unittest.main()
