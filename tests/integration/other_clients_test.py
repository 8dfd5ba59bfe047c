"""Unchanged clients of other projects: LangChain, LiteLLM, OpenAI's asynchronous client,
grpc.aio."""

import asyncio
import json
import os
import pathlib
import subprocess
import unittest

import grpc
import openai
from langchain_core.messages import HumanMessage, SystemMessage
from langchain_openai import ChatOpenAI, OpenAI

import harness
from harness import Client, inference_grpc, make_request

HERE = pathlib.Path(__file__).parent
ALIAS = "gpt-4o-mini"  # a name that these clients know
SYSTEM, HI = "Be brief.", "Say hi."


class OtherClientsTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        for name in list(os.environ):
            if name.lower().endswith("_proxy"):
                del os.environ[name]  # the clients would use these proxies for 127.0.0.1
        cls.server = harness.serve("--alias", ALIAS, "--context", "512")
        cls.base = f"http://{cls.server.http_address}/v1"
        cls.grpc = Client(cls.server)
        cls.chat = cls.grpc.generate(chat=[("system", SYSTEM), ("user", HI)], max_tokens=12,
                                     temperature=0)
        cls.text = cls.grpc.generate(text="The sky is", max_tokens=12, temperature=0).text

    @classmethod
    def tearDownClass(cls):
        cls.server.kill()

    def langchain(self, kind, **more):
        return kind(model=ALIAS, base_url=self.base, api_key="unused", temperature=0,
                    max_tokens=12, max_retries=0, **more)

    def test_langchain_chats(self):
        model = self.langchain(ChatOpenAI)
        messages = [SystemMessage(SYSTEM), HumanMessage(HI)]
        answer = model.invoke(messages)
        self.assertEqual(answer.content, self.chat.text)
        self.assertEqual(answer.usage_metadata["output_tokens"], 12)
        chunks = list(model.stream(messages, stream_usage=True))
        self.assertEqual("".join(chunk.content for chunk in chunks), self.chat.text)
        self.assertGreater(len(chunks), 2)
        usages = [chunk.usage_metadata for chunk in chunks if chunk.usage_metadata]
        self.assertEqual([usage["input_tokens"] for usage in usages],
                         [self.chat.usage.prompt_tokens])
        # The server accepts the client's own message object with all its fields.
        more = model.invoke(messages + [answer, HumanMessage("And again.")])
        self.assertGreater(more.usage_metadata["input_tokens"],
                           answer.usage_metadata["total_tokens"])
        both = model.batch([messages, messages])
        self.assertEqual([one.content for one in both], [self.chat.text] * 2)
        self.assertEqual(asyncio.run(model.ainvoke(messages)).content, self.chat.text)

    def test_langchain_completes(self):
        model = self.langchain(OpenAI)
        self.assertEqual(model.invoke("The sky is"), self.text)
        self.assertEqual("".join(model.stream("The sky is")), self.text)

    def test_langchain_reads_errors(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            self.langchain(ChatOpenAI).invoke("x " * 2000)
        self.assertEqual(caught.exception.code, "context_length_exceeded")
        self.assertIn("maximum context length", str(caught.exception))

    def test_litellm(self):
        result = subprocess.run(
            [os.environ["TIDEPOOL_LITELLM_PYTHON"], str(HERE / "litellm_client.py"), self.base,
             ALIAS, HI], capture_output=True, text=True, timeout=300,
            env=harness.clean_environment())
        self.assertEqual(result.returncode, 0, result.stderr)
        said = json.loads(result.stdout.splitlines()[-1])
        chat = self.grpc.generate(chat=[("user", HI)], max_tokens=12, temperature=0).text
        for way in ("whole", "stream", "async"):
            self.assertEqual(said[way], chat, way)
        self.assertEqual(said["completion"], self.text)
        self.assertGreater(said["second_turn_tokens"], said["first_turn_tokens"])
        self.assertEqual(said["overflow"], "ContextWindowExceededError")
        self.assertEqual(said["unknown"], "NotFoundError")
        self.assertIn(f"served: {ALIAS}", said["unknown_message"])

    def test_openai_asynchronously(self):
        async def ask(client):
            stream = await client.chat.completions.create(
                model=ALIAS, stream=True, temperature=0, max_tokens=12,
                messages=[{"role": "system", "content": SYSTEM}, {"role": "user", "content": HI}])
            return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

        async def all_of(count):
            async with openai.AsyncOpenAI(base_url=self.base, api_key="unused",
                                          max_retries=0) as client:
                self.assertEqual([model.id async for model in client.models.list()], [ALIAS])
                return await asyncio.gather(*[ask(client) for _ in range(count)])

        self.assertEqual(asyncio.run(all_of(20)), [self.chat.text] * 20)

    def test_grpc_aio(self):
        request = make_request(text="The sky is", max_tokens=12, temperature=0)
        request.model = ALIAS

        async def ask(stub):
            return "".join([message.text async for message in stub.Generate(request)])

        async def all_of(count):
            options = [("grpc.enable_http_proxy", 0)]
            async with grpc.aio.insecure_channel(self.server.address, options=options) as channel:
                stub = inference_grpc.InferenceStub(channel)
                texts = await asyncio.gather(*[ask(stub) for _ in range(count)])
                whole = await stub.Complete(request)
                self.assertEqual([one.text for one in whole.completions], [self.text])
                long = make_request(text="The sky is", max_tokens=400)
                long.stopping.ignore_eos = True
                call = stub.Generate(long)
                await call.read()
                call.cancel()
                self.assertEqual(await call.code(), grpc.StatusCode.CANCELLED)
                long.model = "none"
                with self.assertRaises(grpc.aio.AioRpcError) as unknown:
                    await stub.Complete(long)
                self.assertEqual(unknown.exception.code(), grpc.StatusCode.NOT_FOUND)
                self.assertIn(f"served: {ALIAS}", unknown.exception.details())
                return texts

        self.assertEqual(asyncio.run(all_of(20)), [self.text] * 20)
        self.grpc.wait_idle()


if __name__ == "__main__":
    unittest.main()
