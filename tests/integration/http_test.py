"""The HTTP API with third-party clients: the official OpenAI client, raw sockets, many
connections."""

import concurrent.futures
import json
import math
import socket
import unittest

import openai

import chain_model
import harness
from harness import Client, resident_bytes, stall_of, wait_until

TOOL_TEMPLATE = (
    "{% if tools %}<|im_start|>system\nTools: {{ tools | tojson }}\n"
    '{"name": ..., "arguments": ...} in <tool_call></tool_call><|im_end|>\n{% endif %}'
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
TOOL_ANSWER = ["Let ", "me ", "look.", "\n<tool", "_call>", '{"name": ', '"weather", ', '"argu',
               'ments": {"city": ', '"Ulm"}}', "</tool_", "call>"]
TOOLS = [{"type": "function",
          "function": {"name": "weather", "description": "of a city",
                       "parameters": {"type": "object",
                                      "properties": {"city": {"type": "string"}}}}}]
HI = [{"role": "user", "content": "hi"}]


def open_client(server):
    # The client uses no proxies of the environment, and no retries, which would hide failures.
    return openai.OpenAI(base_url=f"http://{server.http_address}/v1", api_key="unused",
                         max_retries=0, timeout=120,
                         http_client=openai.DefaultHttpxClient(trust_env=False))


def peak_resident_bytes(process):
    """Peak resident memory."""
    with open(f"/proc/{process.pid}/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM"))


def raw(server, data, timeout=60):
    """Returns what the server sends after these bytes, until it closes the connection."""
    host, port = server.http_address.split(":")
    with socket.create_connection((host, int(port)), timeout=timeout) as connection:
        try:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # the server has closed the connection, but its response can still be read
        said = b""
        while chunk := connection.recv(65536):
            said += chunk
        return said


class OpenAiTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.server = harness.serve()
        cls.client = open_client(cls.server)
        cls.grpc = Client(cls.server)
        cls.model = cls.client.models.list().data[0].id

    @classmethod
    def tearDownClass(cls):
        cls.server.kill()

    def chat(self, **more):
        return self.client.chat.completions.create(model=self.model, messages=HI,
                                                   **{"max_tokens": 20, **more})

    def test_models(self):
        self.assertEqual(self.client.models.retrieve(self.model).id, self.model)
        with self.assertRaises(openai.NotFoundError):
            self.client.models.retrieve("none/such")

    def test_a_chat_equals_grpc_and_its_stream(self):
        whole = self.chat(temperature=0)
        reference = self.grpc.generate(chat=[("user", "hi")], max_tokens=20, temperature=0)
        self.assertEqual(whole.choices[0].message.content, reference.text)
        self.assertEqual(whole.choices[0].message.role, "assistant")
        self.assertEqual(whole.usage.prompt_tokens, reference.usage.prompt_tokens)
        self.assertEqual(whole.usage.completion_tokens, 20)
        self.assertEqual(whole.choices[0].finish_reason, "length")
        chunks = list(self.chat(temperature=0, stream=True,
                                stream_options={"include_usage": True}))
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        self.assertEqual(text, reference.text)
        self.assertGreaterEqual(len(chunks), 2)
        self.assertEqual(chunks[-1].usage.completion_tokens, 20)
        self.assertEqual(chunks[-2].choices[0].finish_reason, "length")

    def test_usage_reports_experts(self):
        folder = harness.scratch_folder()
        server = harness.serve("--expert-memory", "75%", "--cache-dir", folder, model=harness.MOE)
        self.addCleanup(server.kill)
        client, grpc = open_client(server), Client(server)
        ask = {"model": client.models.list().data[0].id, "prompt": "Once", "max_tokens": 12,
               "n": 2, "seed": 5, "temperature": 1}
        before = grpc.wait_idle()
        whole = client.completions.create(**ask).usage
        between = grpc.wait_idle()
        *_, last = client.completions.create(stream=True, stream_options={"include_usage": True},
                                             **ask)
        after = grpc.wait_idle()
        # This worker computes nothing else, so the growth of its totals is the usage of the
        # responses.
        for usage, first, then in ((whole, before, between), (last.usage, between, after)):
            self.assertEqual(usage.expert_hits, then.expert_hits_total - first.expert_hits_total)
            self.assertEqual(usage.expert_misses,
                             then.expert_misses_total - first.expert_misses_total)
            self.assertGreater(usage.expert_misses, 0)
            total, past = then.offload.total, first.offload.total
            self.assertEqual(usage.expert_demand_bytes, total.demand_bytes - past.demand_bytes)
            self.assertGreater(usage.expert_demand_bytes, 0)
            self.assertAlmostEqual(usage.expert_stall_seconds,
                                   total.stall_seconds - past.stall_seconds, places=6)
        dense = self.chat().usage
        self.assertFalse({name for name in dense.model_dump() if name.startswith("expert_")})

    def test_completions_stop_and_echo(self):
        unnamed = self.client.completions.create(model="", prompt="Once", max_tokens=1)
        self.assertEqual(unnamed.model, self.model)
        plain = self.client.completions.create(model=self.model, prompt="Once", temperature=0,
                                               max_tokens=30).choices[0].text
        stop = plain[10:12]
        cut = self.client.completions.create(model=self.model, prompt="Once", temperature=0,
                                             max_tokens=30, stop=[stop], echo=True).choices[0]
        self.assertEqual(cut.text, "Once" + plain[:plain.index(stop)])
        self.assertEqual(cut.finish_reason, "stop")

    def test_n_and_seed(self):
        first = self.chat(n=2, seed=5, temperature=1)
        again = self.chat(n=2, seed=5, temperature=1)
        texts = [choice.message.content for choice in first.choices]
        self.assertEqual([choice.index for choice in first.choices], [0, 1])
        self.assertEqual(texts, [choice.message.content for choice in again.choices])
        self.assertNotEqual(texts[0], texts[1])
        alone = self.chat(seed=5, temperature=1).choices[0].message.content
        self.assertEqual(alone, texts[0])

    def test_logprobs(self):
        chat = self.chat(logprobs=True, top_logprobs=3, temperature=0).choices[0]
        self.assertEqual(len(chat.logprobs.content), 20)
        for entry in chat.logprobs.content:
            self.assertEqual(len(entry.top_logprobs), 3)
            self.assertEqual(entry.top_logprobs[0].token, entry.token)
        spelled = b"".join(bytes(entry.bytes) for entry in chat.logprobs.content)
        self.assertEqual(spelled.decode(errors="replace"), chat.message.content)
        legacy = self.client.completions.create(model=self.model, prompt="Once", logprobs=2,
                                                temperature=0, max_tokens=5).choices[0].logprobs
        self.assertEqual(len(legacy.tokens), 5)
        self.assertEqual([len(top) for top in legacy.top_logprobs], [2] * 5)
        self.assertEqual(legacy.text_offset[0], 0)

    def test_processed_logprobs_are_those_of_the_draw(self):
        ask = {"logprobs": True, "top_logprobs": 20, "temperature": 1.5, "seed": 3}
        processed = {"logprobs_mode": "processed_logprobs", "structured_outputs": {"choice": ["yes", "no", "maybe"]}}
        constrained = self.chat(**ask, extra_body=processed).choices[0]
        for entry in constrained.logprobs.content:
            chances = {other.token: math.exp(other.logprob) for other in entry.top_logprobs}
            self.assertAlmostEqual(sum(chances.values()), 1, places=4)
            self.assertEqual(chances[entry.token], math.exp(entry.logprob))
        top_k = self.chat(**ask, extra_body={"logprobs_mode": "processed_logprobs", "top_k": 3}).choices[0]
        raw = self.chat(**ask, extra_body={"top_k": 3}).choices[0]
        self.assertEqual(top_k.message.content, raw.message.content)
        for entry, plain in zip(top_k.logprobs.content, raw.logprobs.content):
            self.assertEqual(len(entry.top_logprobs), 3)
            weights = [math.exp(other.logprob / 1.5) for other in plain.top_logprobs[:3]]
            for other, weight in zip(entry.top_logprobs, weights):
                self.assertAlmostEqual(math.exp(other.logprob), weight / sum(weights), places=4)

    def test_an_answer_that_is_too_long_to_be_sent_at_once(self):
        self.chat(n=32, max_tokens=1500)  # so that the server already has memory for 32 sequences
        before = peak_resident_bytes(self.server)
        with self.assertRaises(openai.BadRequestError) as caught:
            self.chat(n=32, max_tokens=1500, temperature=1, logprobs=True, top_logprobs=20)
        grown = peak_resident_bytes(self.server) - before
        print(f"refused with at most {grown / 2**20:.1f} MiB more")
        self.assertEqual(caught.exception.body["param"], "stream")
        self.assertIn("exceeds 32 MiB", str(caught.exception))
        if not harness.SANITIZED:
            self.assertLess(grown, 96 << 20)
        self.grpc.wait_idle()
        self.assertEqual(self.chat(max_tokens=3).usage.completion_tokens, 3)

    def test_errors(self):
        with self.assertRaises(openai.NotFoundError) as missing:
            self.client.chat.completions.create(model="gpt-x", messages=HI)
        self.assertEqual(missing.exception.code, "model_not_found")
        with self.assertRaises(openai.BadRequestError) as unserved:
            self.chat(extra_body={"guided_json": {}})
        self.assertEqual(unserved.exception.param, "guided_json")
        with self.assertRaises(openai.BadRequestError) as unknown:
            self.chat(extra_body={"min_q": 1})
        self.assertIn("did you mean min_p?", str(unknown.exception))
        with self.assertRaises(openai.BadRequestError) as long:
            self.client.completions.create(model=self.model, prompt="x " * 20000)
        self.assertEqual(long.exception.code, "context_length_exceeded")

    def test_tools_that_the_template_does_not_support(self):
        plain = self.chat(temperature=0)
        described = self.chat(temperature=0, tools=TOOLS)
        self.assertGreater(described.usage.prompt_tokens, plain.usage.prompt_tokens + 100)

    def test_extra_body(self):
        greedy = self.chat(temperature=0).choices[0].message.content
        top = self.chat(temperature=1, extra_body={"top_k": 1}).choices[0].message.content
        self.assertEqual(top, greedy)

    def test_samplers(self):
        def complete(**fields):
            return self.client.completions.create(model=self.model, prompt="Tide tide tide", max_tokens=20,
                                                  temperature=1, seed=3, extra_body=fields)
        plain = complete().choices[0].text
        for fields in ({"typical_p": 0.2}, {"top_n_sigma": 0.02}, {"dry_multiplier": 5, "dry_allowed_length": 0},
                       {"xtc_probability": 1, "xtc_threshold": 0.001}, {"bad_words": [plain[:1]]}):
            self.assertNotEqual(complete(**fields).choices[0].text, plain, fields)
        allowed = complete(allowed_token_ids=[65, 66], ignore_eos=True).choices[0].text
        self.assertLessEqual(set(allowed), {"A", "B"})
        with self.assertRaises(openai.BadRequestError) as empty:
            complete(allowed_token_ids=[65], bad_words=["A"])
        self.assertIn("allowed_token_ids and bad_words exclude", str(empty.exception))

    def test_a_cancel_stops_the_work(self):
        before = self.grpc.wait_idle().requests_cancelled_total
        # More than the buffers between the server and a client that does not read.
        stream = self.chat(stream=True, max_tokens=3900, logprobs=True, top_logprobs=20,
                           extra_body={"ignore_eos": True})
        next(iter(stream))
        stream.close()
        stats = self.grpc.wait_idle()
        self.assertEqual(stats.requests_cancelled_total, before + 1)
        self.assertEqual(stats.kv_blocks_free, stats.kv_blocks_total)

    def test_many_at_once(self):
        expected = self.chat(temperature=0).choices[0].message.content
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            answers = pool.map(lambda _: self.chat(temperature=0), range(64))
            self.assertEqual({answer.choices[0].message.content for answer in answers}, {expected})

    def test_a_stream_that_is_asked_for_again(self):
        fields = {"model": self.model, "prompt": "Once", "max_tokens": 40, "temperature": 1,
                  "stream": True}
        def ask(**headers):
            stream = self.client.completions.create(
                **fields, extra_headers={name.replace("_", "-"): value
                                         for name, value in headers.items()})
            return "".join(chunk.choices[0].text for chunk in stream)
        whole = ask(Idempotency_Key="again")
        self.assertEqual(ask(Idempotency_Key="again"), whole)
        rest = ask(Idempotency_Key="again", Last_Event_ID="17")
        self.assertTrue(rest and whole.endswith(rest) and len(rest) < len(whole), (whole, rest))
        # Another front behaves like the first one after a restart: the name of the request
        # determines the seed.
        other = harness.serve()
        self.addCleanup(other.kill)
        again = open_client(other).completions.create(
            **fields, extra_headers={"Idempotency-Key": "again", "Last-Event-ID": "17"})
        self.assertEqual("".join(chunk.choices[0].text for chunk in again), rest)
        with self.assertRaises(openai.ConflictError) as conflict:
            self.client.completions.create(model=self.model, prompt="Twice",
                                           extra_headers={"X-Request-Id": "again"})
        self.assertIn("again", str(conflict.exception))


class ToolsTest(unittest.TestCase):

    def test_calls_of_tools(self):
        path = chain_model.write(harness.scratch_folder() / "chain.gguf", TOOL_ANSWER,
                                 TOOL_TEMPLATE)
        server = harness.serve(model=path)
        self.addCleanup(server.kill)
        client = open_client(server)
        ask = {"model": "chain", "messages": HI, "temperature": 0}
        choice = client.chat.completions.create(tools=TOOLS, **ask).choices[0]
        self.assertEqual(choice.finish_reason, "tool_calls")
        self.assertEqual(choice.message.content, "Let me look.")
        call = choice.message.tool_calls[0]
        self.assertEqual(call.function.name, "weather")
        self.assertEqual(json.loads(call.function.arguments), {"city": "Ulm"})

        chunks = list(client.chat.completions.create(tools=TOOLS, stream=True, **ask))
        deltas = [chunk.choices[0].delta for chunk in chunks]
        self.assertEqual("".join(delta.content or "" for delta in deltas), "Let me look.")
        calls = [one for delta in deltas for one in delta.tool_calls or []]
        # The first piece has the id and the name. On a busy machine it may be the only one.
        self.assertEqual([one.function.name for one in calls if one.id], ["weather"])
        self.assertEqual("".join(one.function.arguments for one in calls),
                         call.function.arguments)
        self.assertEqual(chunks[-1].choices[0].finish_reason, "tool_calls")
        with client.chat.completions.stream(tools=TOOLS, **ask) as stream:
            final = stream.get_final_completion().choices[0].message
        self.assertEqual(final.tool_calls[0].function.arguments, call.function.arguments)

        # A client that names its request gets the same ids when it sends the request again.
        ids = [client.chat.completions.create(tools=TOOLS, extra_headers={"X-Request-Id": "again"},
                                              **ask).choices[0].message.tool_calls[0].id
               for _ in range(2)]
        self.assertEqual(ids[0], ids[1])
        self.assertNotEqual(ids[0], call.id)

        # The conversation continues with the client's own message object.
        turn = HI + [choice.message.model_dump(),
                     {"role": "tool", "tool_call_id": call.id, "content": "sunny"}]
        more = client.chat.completions.create(model="chain", messages=turn, tools=TOOLS)
        bare = client.chat.completions.create(model="chain", messages=HI, tools=TOOLS)
        self.assertGreater(more.usage.prompt_tokens, bare.usage.prompt_tokens + len("weather"))
        # Without tools, the text is returned as content.
        plain = client.chat.completions.create(**ask).choices[0]
        self.assertIn("<tool_call>", plain.message.content)
        self.assertEqual(plain.finish_reason, "stop")


class WireTest(unittest.TestCase):

    def setUp(self):
        self.server = harness.serve()
        self.addCleanup(self.server.kill)

    def test_garbage(self):
        for data in (b"\x00\xff" * 5000, b"GET\r\n\r\n", b"\x16\x03\x01\x02\x00" + b"x" * 512,
                     b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"):
            self.assertTrue(raw(self.server, data).startswith(b"HTTP/1.1 4"), data[:20])
        post = (b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                b"Content-Length: %d\r\n\r\n%s")
        for body in (b"", b"\xff", b"[" * 100000, b'{"prompt":"\xc3("}'):
            self.assertTrue(raw(self.server, post % (len(body), body)).startswith(b"HTTP/1.1 400"))
        oversize = raw(self.server, post % (1 << 30, b"{" * 100))
        self.assertTrue(oversize.startswith(b"HTTP/1.1 413"), oversize)
        self.assertTrue(raw(self.server, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
                        .startswith(b"HTTP/1.1 200"))

    def test_a_thousand_idle_connections(self):
        host, port = self.server.http_address.split(":")
        before = resident_bytes(self.server)
        idle = [socket.create_connection((host, int(port))) for _ in range(1000)]
        client = open_client(self.server)
        model = client.models.list().data[0].id
        answer = client.completions.create(model=model, prompt="Once", max_tokens=5)
        self.assertEqual(answer.usage.completion_tokens, 5)
        per_connection = (resident_bytes(self.server) - before) / len(idle)
        print(f"1,000 idle connections: {per_connection:.0f} bytes each")
        self.assertLess(per_connection, 32 << 10)
        for connection in idle:
            connection.close()

    def test_a_reader_that_stops(self):
        host, port = self.server.http_address.split(":")
        body = json.dumps({"prompt": "Once", "max_tokens": 1900, "stream": True, "logprobs": 20,
                           "ignore_eos": True}).encode()
        with socket.create_connection((host, int(port))) as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                         b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
                         % (len(body), body))
            grpc = Client(self.server)
            # Without credit, its sequence is not planned.
            stalled = wait_until(lambda: stall_of(grpc), "the stream is held back")
            self.assertLess(stalled, 1900)
            others = open_client(self.server)
            model = others.models.list().data[0].id
            answer = others.completions.create(model=model, prompt="Once", max_tokens=50)
            self.assertEqual(answer.usage.completion_tokens, 50)
            said = b""
            while chunk := slow.recv(1 << 20):
                said += chunk
        tokens = sum(len(event["choices"][0]["logprobs"]["tokens"]) for event in events_of(said)
                     if event["choices"][0]["logprobs"])
        self.assertEqual(tokens, 1900)

    def test_names_of_ports(self):
        taken = harness.run_tidepool("serve", "--model", harness.LLAMA, "--store", ":memory:",
                                     "--listen", "127.0.0.1:0", "--http", self.server.http_address)
        self.assertEqual(taken.returncode, 1)
        self.assertIn(self.server.http_address, taken.stderr)
        self.assertIn("--http", taken.stderr)
        self.assertEqual(len(taken.stderr.splitlines()), 1, taken.stderr)
        quiet = harness.serve("--http", "off")
        self.addCleanup(quiet.kill)
        self.assertIsNone(quiet.http_address)

    def test_a_front_and_its_worker(self):
        worker = harness.worker()
        self.addCleanup(worker.kill)
        front = harness.front([worker])
        self.addCleanup(front.kill)
        client = open_client(front)
        model = client.models.list().data[0].id
        answer = client.completions.create(model=model, prompt="Once", max_tokens=5, logprobs=1)
        self.assertEqual(len(answer.choices[0].logprobs.tokens), 5)
        self.assertEqual(front.stop(), 0)


def events_of(said):
    """Returns the JSON events of a chunked event stream that ends with [DONE]."""
    rest, text = said.partition(b"\r\n\r\n")[2], b""
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        text, rest = text + rest[:int(size, 16)], rest[int(size, 16) + 2:]
    lines = [line[6:] for line in text.decode().split("\n\n") if line]
    assert lines[-1] == "[DONE]", lines[-1]
    return [json.loads(line) for line in lines[:-1]]


if __name__ == "__main__":
    unittest.main(verbosity=2)
