"""Stock grpcurl with `serve`: lists, describes and calls everything by reflection alone."""

import json
import os
import shutil
import subprocess
import unittest

import harness

GRPCURL = os.environ["TIDEPOOL_GRPCURL"]
SERVICES = {
    **{service.full_name: service
       for module in (harness.inference_pb, harness.sessions_pb, harness.admin_pb)
       for service in module.DESCRIPTOR.services_by_name.values()},
}
MESSAGES = [message.full_name
            for module in (harness.inference_pb, harness.sessions_pb, harness.admin_pb)
            for message in module.DESCRIPTOR.message_types_by_name.values()]


def json_stream(text):
    decoder, position, values, text = json.JSONDecoder(), 0, [], text.strip()
    while position < len(text):
        value, position = decoder.raw_decode(text, position)
        values.append(value)
        while position < len(text) and text[position].isspace():
            position += 1
    return values


class GrpcurlTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.model = harness.scratch_folder() / "moe.gguf"
        shutil.copy(harness.MOE, cls.model)
        cls.server = harness.serve("--expert-memory", "75%", model=cls.model)
        cls.addClassCleanup(cls.server.kill)
        cls.called = set()

    def grpcurl(self, *arguments, code=0, flags=()):
        result = subprocess.run([GRPCURL, "-plaintext", *flags, self.server.address, *arguments],
                                capture_output=True, text=True, timeout=60,
                                env=harness.clean_environment())
        self.assertEqual(result.returncode, code, f"{arguments}\n{result.stdout}{result.stderr}")
        return result.stdout if code == 0 else result.stderr

    def call(self, method, request):
        """Calls tidepool.v1.`method` and returns the response messages."""
        self.called.add("tidepool.v1." + method.replace("/", "."))
        answers = self.grpcurl("tidepool.v1." + method, flags=("-d", json.dumps(request)))
        return json_stream(answers)

    def call_one(self, method, request):
        answers = self.call(method, request)
        self.assertEqual(len(answers), 1, answers)
        return answers[0]

    def test_lists_every_service(self):
        listed = self.grpcurl("list").split()
        self.assertLessEqual(set(SERVICES), set(listed))
        self.assertIn("grpc.health.v1.Health", listed)
        self.assertIn("grpc.reflection.v1alpha.ServerReflection", listed)

    def test_describes_every_service_method_and_message(self):
        for name, service in SERVICES.items():
            described = self.grpcurl("describe", name)
            methods = self.grpcurl("list", name).split()
            self.assertEqual(sorted(methods),
                             sorted(method.full_name for method in service.methods))
            for method in service.methods:
                self.assertIn(f"rpc {method.name} ", described)
                self.assertIn(method.name, self.grpcurl("describe", method.full_name))
        for name in MESSAGES:
            self.assertIn(f"message {name.rpartition('.')[2]} ", self.grpcurl("describe", name))

    def test_calls_every_rpc(self):
        self.call_inference()
        self.call_models()
        self.call_sessions()
        stats = self.call_one("Admin/GetStats", {})
        self.assertEqual(len(stats["workers"]), 1)
        self.assertGreater(int(stats["workers"][0]["generated_tokens_total"]), 0)
        self.assertGreater(int(stats["workers"][0]["expert_hits_total"]), 0)
        self.assertGreater(int(stats["front"]["requests_total"]), 0)
        worker = stats["workers"][0]["worker_id"]
        one = self.call_one("Admin/GetStats", {"workerId": worker})
        self.assertEqual([found["worker_id"] for found in one["workers"]], [worker])
        self.call_experts(worker)
        self.call_drain()
        every = {method.full_name for service in SERVICES.values() for method in service.methods}
        self.assertEqual(every, self.called)

    def call_drain(self):
        """Calls Drain of a separate server, whose process ends."""
        shared, self.server = self.server, harness.serve()
        self.addCleanup(self.server.kill)
        drained, = self.call_one("Admin/Drain", {})["workers"]
        self.assertEqual(drained.get("status_code", 0), 0, drained)
        self.assertEqual(self.server.wait(), 0)
        self.server = shared

    def call_experts(self, worker):
        before = self.call_one("Admin/SetOffload", {})["workers"][0]
        self.assertEqual(before["worker_id"], worker)
        changed = self.call_one("Admin/SetOffload", {"policy": "tide", "refreshInterval": 4,
                                                     "expertMemoryShare": 0.8})["workers"][0]
        self.assertEqual(changed["settings"]["policy"], "tide")
        self.assertEqual(changed["settings"]["slots"], "4")
        refreshed = self.call_one("Admin/RefreshExperts", {"workerId": worker})["workers"][0]
        self.assertEqual(refreshed["settings"], changed["settings"])
        layers = self.call_one("Admin/GetPlacement", {})["workers"][0]["layers"]
        self.assertEqual(len(layers), 2)
        self.assertEqual(len(layers[1]["uses_total"]), 8)
        readings = self.call("Admin/WatchStats", {"intervalSeconds": 0.1, "count": 2})
        self.assertEqual(len(readings), 2)
        self.assertEqual(readings[1]["workers"][0]["offload"]["policy"], "tide")

    def call_inference(self):
        text = "In the harbour of Brannoch, 41 boats wait"
        ids = self.call_one("Inference/Tokenize", {"text": text})["token_ids"]
        self.assertGreater(len(ids), 10)
        self.assertEqual(self.call_one("Inference/Detokenize", {"tokenIds": ids}), {"text": text})
        messages = self.call("Inference/Generate",
                             {"text": text, "stopping": {"maxTokens": 12}, "logprobs": True,
                              "topLogprobs": 2, "requestId": "of-grpcurl"})
        streamed = [i for message in messages for i in message.get("token_ids", [])]
        self.assertEqual(len(streamed), 12)
        self.assertTrue(all(message["request_id"] == "of-grpcurl" for message in messages))
        for message in messages:
            for token, logprob in zip(message.get("token_ids", []), message.get("logprobs", []),
                                      strict=True):
                self.assertEqual(logprob["token_id"], token)
                self.assertEqual(logprob["top"][0]["token_id"], token)  # greedy
                self.assertEqual(len(logprob["top"]), 2)
        self.assertEqual(messages[-1]["finish_reason"], "LENGTH")
        self.assertEqual(messages[-1]["usage"]["completion_tokens"], "12")
        self.assertEqual(messages[-1]["usage"]["prompt_tokens"], str(len(ids)))
        complete = self.call_one("Inference/Complete", {"tokenIds": {"ids": ids},
                                                        "stopping": {"maxTokens": 12}})
        self.assertEqual(complete["completions"][0]["token_ids"], streamed)
        self.assertEqual(complete["completions"][0]["text"],
                         "".join(message.get("text", "") for message in messages))

    def call_models(self):
        models = self.call_one("Inference/ListModels", {})["models"]
        self.assertEqual(len(models), 1)
        model = self.call_one("Inference/GetModel", {"model": models[0]["name"]})
        self.assertEqual(model, models[0])
        self.assertEqual(self.call_one("Inference/GetModel", {}), model)
        self.assertEqual((model["architecture"], model["vocab_size"], model["experts"]),
                         ("qwen3moe", 300, 8))
        self.assertTrue(model["has_chat_template"])

    def call_sessions(self):
        made = self.call_one("Sessions/CreateSession", {"sessionId": "curl"})
        self.assertEqual(made["session_id"], "curl")
        for cached in (False, True):
            message = {"role": "user", "content": "How deep is the water here?"}
            turn = {"sessionId": "curl", "stopping": {"maxTokens": 20},
                    "chat": {"messages": [message]}}
            usage = self.call("Inference/Generate", turn)[-1]["usage"]
            self.assertEqual(int(usage.get("cached_tokens", 0)) > 0, cached, usage)
        found = self.call_one("Sessions/GetSession", {"sessionId": "curl"})
        self.assertEqual((found["kind"], found["turn_count"], len(found["turns"])), ("CHAT", 2, 2))
        self.assertEqual([message["role"] for message in found["turns"][1]["messages"]],
                         ["user", "assistant"])
        forked = self.call_one("Sessions/ForkSession",
                               {"sessionId": "curl", "newSessionId": "branch"})
        self.assertEqual(forked["token_count"], found["token_count"])
        second = found["turns"][1].get("start", 0)
        cut = self.call_one("Sessions/TruncateSession",
                            {"sessionId": "branch", "position": second})
        self.assertEqual((cut["token_count"], cut["turn_count"]), (second, 1))
        self.assertEqual(self.call_one("Sessions/DeleteSession", {"sessionId": "branch"}), {})
        listed = self.call_one("Sessions/ListSessions", {})["sessions"]
        self.assertEqual([one["session_id"] for one in listed], ["curl"])
        self.assertEqual(self.call_one("Sessions/DeleteSession", {"sessionId": "curl"}), {})
        self.assertIn("NotFound", self.grpcurl("tidepool.v1.Sessions/GetSession", code=69,
                                               flags=("-d", '{"sessionId": "curl"}')))

    def test_health(self):
        for service in ["", "readiness", "liveness", *SERVICES]:
            answer = self.grpcurl("grpc.health.v1.Health/Check",
                                  flags=("-d", json.dumps({"service": service})))
            self.assertEqual(json.loads(answer), {"status": "SERVING"}, service)
        self.assertIn("NotFound", self.grpcurl("grpc.health.v1.Health/Check", code=69,
                                               flags=("-d", '{"service": "nothing"}')))

    def test_an_unknown_field_is_named(self):
        error = self.grpcurl("tidepool.v1.Inference/Generate", code=1,
                             flags=("-d", '{"text": "a", "temprature": 1}'))
        self.assertIn("temprature", error)

    def test_the_printed_call_works(self):
        lines = [line for line in (self.server.stdout + self.server.stderr).splitlines()
                 if "grpcurl " in line]
        self.assertTrue(lines, "serve printed no grpcurl call")
        printed = "\n".join((self.server.stdout + self.server.stderr).splitlines())
        call = printed[printed.index("grpcurl "):]
        call = call.replace("\\\n", " ").splitlines()[0]
        result = subprocess.run(["sh", "-c", call.replace("grpcurl ", f"{GRPCURL} ", 1)],
                                capture_output=True, text=True, timeout=60,
                                env=harness.clean_environment())
        self.assertEqual(result.returncode, 0, f"{call}\n{result.stderr}")
        self.assertIn("finish_reason", json.dumps(json_stream(result.stdout)[-1]))


if __name__ == "__main__":
    unittest.main(verbosity=2)
