"""Bad requests and files get the right code and a one-line error, and the server continues."""

import math
import struct
import unittest

import grpc

import harness
from harness import Client, failure, make_request

CONTEXT = 4096


def request(**changes):
    """Returns a valid request with one change: a dotted field and its value."""
    built = make_request(text="Good", max_tokens=3)
    for path, value in changes.items():
        *parents, name = path.split("__")
        message = built
        for parent in parents:
            message = getattr(message, parent)
        field = getattr(message, name)
        if isinstance(value, list):
            field.extend(value)
        elif isinstance(value, dict):
            field.update(value)
        else:
            setattr(message, name, value)
    return built


NAN, INFINITY = math.nan, math.inf
# Changes, and the text that the error must contain.
INVALID = [
    *[({f"sampling__{name}": value}, name)
      for name, values in {
          "temperature": (NAN, INFINITY, -0.1, 101.0),
          "top_k": (-1,),
          "top_p": (NAN, 0.0, -0.5, 1.5),
          "min_p": (NAN, -0.1, 1.5),
          "repetition_penalty": (NAN, 0.0, -1.0, INFINITY),
          "frequency_penalty": (NAN, 2.5, -2.5),
          "presence_penalty": (NAN, 2.5, -2.5),
          "logit_bias": ({7: NAN}, {7: 101.0}, {7: -INFINITY}, {-1: 1.0}, {300: 1.0},
                         {number: 1.0 for number in range(1025)}),
          "typical_p": (NAN, 0.0, -0.5, 1.5),
          "top_n_sigma": (NAN, -1.0, INFINITY),
          "xtc_probability": (NAN, -0.1, 1.5),
          "xtc_threshold": (NAN, -0.1, 1.5),
          "dry_multiplier": (NAN, -0.1, INFINITY),
          "dry_base": (NAN, 0.9, INFINITY),
          "dry_allowed_length": (-1,),
          "dry_penalty_last_n": (-2,),
          "dry_sequence_breakers": ([""], ["x" * 65], ["x"] * 129),
          "bad_words": ([""], ["x" * 257], ["x"] * 129),
          "allowed_token_ids": ([-1], [300]),
      }.items() for value in values],
    *[({f"stopping__{name}": value}, name)
      for name, values in {
          "max_tokens": (0, -1, -(1 << 62)),
          "stop": ([""], ["a"] * 17, ["x" * 1025]),
          "stop_token_ids": ([-1], [300]),
      }.items() for value in values],
    ({"top_logprobs": 21, "logprobs": True}, "top_logprobs"),
    ({"top_logprobs": -1, "logprobs": True}, "top_logprobs"),
    ({"top_logprobs": 2}, "logprobs"),
    ({"priority": 101}, "priority"),
    ({"priority": -101}, "priority"),
    ({"n": 0}, "n"),
    ({"n": -3}, "n"),
    ({"n": 129}, "n"),
    ({"n": 2, "session_id": "s"}, "n above 1"),
    ({"prompt_logprobs": 21}, "prompt_logprobs"),
    ({"request_id": "x" * 129}, "request_id"),
    ({"resume_after": 0}, "request_id"),
    ({"request_id": "x", "resume_after": 1 << 31}, "resume_after"),
    ({"session_id": "with space"}, "session_id"),
    ({"text": ""}, "text"),
    ({"text": "kelp " * CONTEXT}, str(CONTEXT)),
    ({"text": "kelp " * (2 << 20)}, str(CONTEXT)),  # 10 MB
    ({"token_ids__ids": [65] * (CONTEXT + 1)}, str(CONTEXT)),
    ({"token_ids__ids": [300]}, "300"),
    ({"token_ids__ids": [65, -1]}, "-1"),
]
UNSERVED = [
    ({"adapter": "a"}, "adapter"),
]


class BadRequestTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.server = harness.serve()
        cls.addClassCleanup(cls.server.kill)
        cls.client = Client(cls.server)
        cls.addClassCleanup(cls.client.close)
        cls.good = cls.client.generate(text="Good", max_tokens=3)
        cls.before = cls.client.wait_idle()

    def tearDown(self):
        # The server still works, and has no unfinished request.
        self.assertEqual(self.client.generate(text="Good", max_tokens=3).ids, self.good.ids)
        self.assertEqual(self.client.wait_idle().kv_blocks_free, self.before.kv_blocks_free)

    def expect(self, call, code, *named):
        found, message = failure(call)
        self.assertEqual(found, code, message)
        self.assertTrue(message.strip())
        self.assertNotIn("\n", message)
        self.assertLess(len(message), 400)
        self.assertNotRegex(message, r"\.(cc|h):\d|absl|grpc_status|Status\(")
        for name in named:
            self.assertIn(name, message)

    def expect_both_ways(self, bad, code, *named):
        self.expect(lambda: self.client.inference.Generate(bad, timeout=60), code, *named)
        self.expect(lambda: self.client.inference.Complete(bad, timeout=60), code, *named)

    def test_values_outside_their_ranges(self):
        for changes, named in INVALID:
            with self.subTest(named=named, value=str(changes)[:60]):
                self.expect_both_ways(request(**changes), "INVALID_ARGUMENT", named)

    def test_fields_that_are_not_served(self):
        for changes, named in UNSERVED:
            with self.subTest(named):
                self.expect_both_ways(request(**changes), "UNIMPLEMENTED", named)

    def test_no_input(self):
        self.expect_both_ways(make_request(max_tokens=3), "INVALID_ARGUMENT", "text")
        empty = make_request(max_tokens=3)
        empty.token_ids.SetInParent()
        self.expect_both_ways(empty, "INVALID_ARGUMENT", "token_ids")

    def test_chats(self):
        empty = make_request(max_tokens=3)
        empty.chat.SetInParent()
        self.expect_both_ways(empty, "INVALID_ARGUMENT", "messages")
        for name, value in (("tools_json", "{"), ("tools_json", '{"a": 1}'),
                            ("template_kwargs_json", "[1]"), ("template_kwargs_json", "\\")):
            bad = make_request(chat=[("user", "Good")], max_tokens=3)
            setattr(bad.chat, name, value)
            self.expect_both_ways(bad, "INVALID_ARGUMENT", name)
        bad = make_request(chat=[("", "Good")], max_tokens=3)
        self.expect_both_ways(bad, "INVALID_ARGUMENT", "role")
        bad = make_request(chat=[("user", "kelp " * CONTEXT)], max_tokens=3)
        self.expect_both_ways(bad, "INVALID_ARGUMENT", str(CONTEXT))

    def test_unknown_names(self):
        self.expect_both_ways(request(model="no-such-model"), "NOT_FOUND", "no-such-model")
        self.expect_both_ways(request(session_id="no-such-session"), "NOT_FOUND", "no-such-session")
        inference = harness.inference_pb
        for call in (
                lambda: self.client.get_session("no-such-session"),
                lambda: self.client.delete_session("no-such-session"),
                lambda: self.client.inference.GetModel(
                    inference.GetModelRequest(model="no-such-model")),
                lambda: self.client.inference.Tokenize(
                    inference.TokenizeRequest(model="no-such-model", text="a")),
                lambda: self.client.inference.Detokenize(
                    inference.DetokenizeRequest(model="no-such-model", token_ids=[65])),
                lambda: self.client.admin.GetStats(
                    harness.admin_pb.GetStatsRequest(worker_id="no-such-worker"))):
            self.expect(call, "NOT_FOUND", "no-such-")
        for ids in ([300], [-1], [65, 1 << 30]):
            self.expect(lambda: self.client.inference.Detokenize(
                inference.DetokenizeRequest(token_ids=ids)), "INVALID_ARGUMENT", str(ids[-1]))

    def raw(self, method, body, timeout=60):
        """Calls tidepool.v1.`method` with bytes that no client library sends."""
        call = self.client.channel.unary_stream("/tidepool.v1." + method)
        return lambda: list(call(body, timeout=timeout))

    def test_text_that_is_not_utf8(self):
        field_2 = lambda text: b"\x12" + bytes([len(text)]) + text
        for text in (b"\xff", b"a\xc3", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\xc0\xaf"):
            self.expect(self.raw("Inference/Generate", field_2(text)), "INVALID_ARGUMENT", "text")
            self.expect(self.raw("Inference/Complete", field_2(text)), "INVALID_ARGUMENT", "text")
            self.expect(self.raw("Inference/Tokenize", field_2(text)), "INVALID_ARGUMENT", "text")
        session = b"\x0a\x02\xff\xfe"
        for method in ("CreateSession", "GetSession", "DeleteSession"):
            self.expect(self.raw(f"Sessions/{method}", session), "INVALID_ARGUMENT", "session_id")

    def test_bytes_that_are_no_message(self):
        for method in ("Inference/Generate", "Inference/Complete", "Inference/GetModel",
                       "Sessions/GetSession", "Admin/GetStats"):
            self.expect(self.raw(method, b"\x0a\xff\xff\xff\xff\x0f"), "INVALID_ARGUMENT")

    def test_fields_of_the_future_are_left_alone(self):
        body = make_request(text="Good", max_tokens=3).SerializeToString() + b"\xfa\x3e\x03new"
        messages = self.raw("Inference/Generate", body)()
        last = harness.inference_pb.GenerateResponse.FromString(messages[-1])
        self.assertEqual(last.finish_reason, harness.inference_pb.LENGTH)

    def test_unknown_methods_and_services(self):
        # gRPC itself refuses these, without a message.
        for method in ("Inference/Nothing", "Nothing/Nothing"):
            self.assertEqual(failure(self.raw(method, b""))[0], "UNIMPLEMENTED")

    def test_messages_past_the_size_limit(self):
        huge = make_request(text="kelp " * (8 << 20), max_tokens=3)  # 40 MB
        self.expect_both_ways(huge, "RESOURCE_EXHAUSTED")

    def test_a_bad_turn_leaves_its_session_alone(self):
        self.client.create_session("spared")
        self.addCleanup(self.client.delete_session, "spared")
        self.client.generate(session="spared", text="One", max_tokens=3)
        before = self.client.get_session("spared")
        for changes in ({"sampling__temperature": NAN}, {"text": ""}, {"n": 2},
                        {"text": "kelp " * CONTEXT}, {"model": "no-such-model"}):
            failure(lambda: self.client.inference.Generate(
                request(session_id="spared", **changes), timeout=60))
            self.assertEqual(self.client.get_session("spared"), before)

    def test_a_prompt_that_can_never_fit_the_memory(self):
        server = harness.serve("--kv-memory", "1MiB")
        self.addCleanup(server.kill)
        small = Client(server)
        self.addCleanup(small.close)
        model = small.inference.GetModel(harness.inference_pb.GetModelRequest())
        # The reported context fits into the memory.
        stats = small.worker_stats()
        self.assertLessEqual(model.context_length, stats.kv_blocks_total * stats.kv_block_tokens)
        code, message = failure(
            lambda: small.stream(ids=[65] * (model.context_length + 1), max_tokens=1))
        self.assertIn(code, ("INVALID_ARGUMENT", "RESOURCE_EXHAUSTED"), message)
        self.assertEqual(len(small.generate(text="Good", max_tokens=3).ids), 3)

    def test_a_full_queue(self):
        server = harness.serve("--max-sequences", "1", "--max-queued", "2")
        self.addCleanup(server.kill)
        client = Client(server)
        self.addCleanup(client.close)
        # The first stream cannot end before the last one has arrived, because its client does not
        # read until then.
        streams = [client.wide_stream(text=f"Queue {number}", max_tokens=2500)
                   for number in range(24)]
        codes = []
        for stream in streams:
            try:
                self.assertTrue(list(stream))
                codes.append("OK")
            except grpc.RpcError as error:
                codes.append(error.code().name)
                self.assertNotIn("\n", error.details())
        self.assertEqual(set(codes), {"OK", "RESOURCE_EXHAUSTED"})
        self.assertEqual(len(client.generate(text="Good", max_tokens=3).ids), 3)


class BadFileTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.good = (harness.TINY / "mixtral_q4_0.gguf").read_bytes()
        cls.folder = harness.scratch_folder()

    def write(self, name, content):
        path = self.folder / name
        path.write_bytes(content)
        return path

    def refuse(self, path, *named, commands=("serve", "generate", "inspect", "logits", "tokenize")):
        more = {
            "serve": ["--store", ":memory:", "--listen", "127.0.0.1:0", "--http", "off"],
            "worker": ["--listen", "127.0.0.1:0"],
            "generate": ["--prompt", "a", "--max-tokens", "1"],
            "inspect": [],
            "logits": ["--tokens", "1", "--out", self.folder / "never.npy"],
            "tokenize": ["--text", "a"],
        }
        for command in commands:
            with self.subTest(command=command, file=path.name):
                result = harness.run_tidepool(command, "--model", path, *more[command])
                self.assertEqual(result.returncode, 2, result.stderr)
                self.assertEqual(result.stdout, "")
                self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
                for name in (path, *named):
                    self.assertIn(str(name), result.stderr)
                self.assertFalse((self.folder / "never.npy").exists())

    def test_truncated(self):
        for size in (0, 3, 4, 20, 100, 3000, 7000, len(self.good) // 2, len(self.good) - 1):
            self.refuse(self.write(f"cut-{size}.gguf", self.good[:size]))

    def test_foreign(self):
        self.refuse(self.write("text.gguf", b"It was a quiet night in the harbour.\n" * 100))
        self.refuse(self.write("zip.gguf", b"PK\x03\x04" + bytes(4000)))
        self.refuse(self.write("zeros.gguf", bytes(10000)))
        self.refuse(self.write("magic.gguf", b"FUGG" + self.good[4:]))
        future = b"GGUF" + struct.pack("<I", 99) + self.good[8:]
        self.refuse(self.write("version.gguf", future), "99")
        self.refuse(self.folder)
        self.refuse(self.folder / "missing.gguf")

    def test_a_tensor_past_the_end(self):
        # The offset is the last field of the last tensor info.
        at = self.good.index(b"output.weight") + len(b"output.weight") + 4 + 2 * 8 + 4
        far = bytearray(self.good)
        far[at:at + 8] = struct.pack("<Q", len(self.good) // 32 * 32 + (1 << 20))
        self.refuse(self.write("far.gguf", bytes(far)), "output.weight")

    def test_a_scale_that_is_no_number(self):
        # output.weight is the last tensor. A Q4_0 block is a 2-byte scale and 16 bytes.
        nan = bytearray(self.good)
        nan[-18:-16] = struct.pack("<H", 0x7e00)
        path = self.write("nan.gguf", bytes(nan))
        self.refuse(path, "output.weight", commands=("serve", "worker", "generate", "logits"))

    def test_a_shape_that_does_not_fit(self):
        at = self.good.index(b"output.weight") + len(b"output.weight") + 4
        narrow = bytearray(self.good)
        narrow[at:at + 8] = struct.pack("<Q", 32)
        path = self.write("narrow.gguf", bytes(narrow))
        self.refuse(path, "output.weight", commands=("serve", "worker", "generate", "logits"))

    def test_the_file_that_was_changed_is_good(self):
        path = self.write("good.gguf", self.good)
        result = harness.run_tidepool("generate", "--model", path, "--prompt", "a",
                                      "--max-tokens", "1")
        self.assertEqual(result.returncode, 0, result.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
