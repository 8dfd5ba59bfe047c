"""The commands as seen by a shell: exit codes, stdout, stderr, and the structure of --json."""

import json
import os
import re
import subprocess
import unittest

import numpy

import harness
from command_test_case import CommandTest
from harness import run_tidepool

GOLDEN = json.loads((harness.TINY / "serving_llama_f32.json").read_text())["prompts"][0]
TEXT, IDS = GOLDEN["text"], GOLDEN["ids"]
TOKENS = ",".join(map(str, IDS))
MODEL = ("--model", harness.LLAMA)


class CommandLineTest(CommandTest):

    def test_help_and_version(self):
        general = self.run_well("--help").stdout
        commands = re.findall(r"^  (\w+) {2,}", general, re.MULTILINE)
        for command in ("serve", "front", "worker", "generate", "chat", "logits", "tokenize",
                        "detokenize", "inspect", "stats", "bench",
                        "quantize", "perplexity", "pack", "replay"):
            self.assertIn(command, commands)
            text = self.run_well(command, "--help").stdout
            self.assertIn(f"tidepool {command} ", text)
            self.assertIn("--json", text)
            self.assertLessEqual(max(map(len, text.splitlines())), 110)
        self.assertRegex(self.run_well("--version").stdout, r"^tidepool \d+\.\d+\.\d+\n$")

    def test_unknown_names_come_with_the_nearest(self):
        self.refuse("serv", *MODEL, named=("serv", "serve"))
        self.refuse("generate", *MODEL, "--promt", "a", named=("--promt", "--prompt"))
        self.refuse("generate", *MODEL, "--prompt", "a", "--temprature=1",
                    named=("--temprature", "--temperature"))
        self.refuse("serve", *MODEL, "--kv-memry", "1GiB", named=("--kv-memry", "--kv-memory"))
        self.refuse("inspect", *MODEL, "stray", named="stray")
        self.refuse(named="command")

    def test_unavailable_flags_are_refused(self):
        for arguments in (["serve", *MODEL, "--max-experts-per-layer", "2"],
                          ["serve", *MODEL, "--ranks", "2"]):
            self.refuse(*arguments, named="not available yet")

    def test_bad_values(self):
        for flag, value in (("--max-tokens", "-1"), ("--max-tokens", "0"), ("--max-tokens", "many"),
                            ("--temperature", "nan"), ("--temperature", "-1"), ("--top-p", "2"),
                            ("--seed", "-1"), ("--threads", "0"), ("--kv-memory", "5"),
                            ("--kv-memory", "lots"), ("--context", "-5"), ("--isa", "mmx"),
                            ("--timeout", "5 parsecs"), ("--logit-bias", "5"),
                            ("--top-p", "0"), ("--repetition-penalty", "0")):
            self.refuse("generate", *MODEL, "--prompt", "a", flag, value, named=flag)
        self.refuse("generate", *MODEL, "--prompt", "a", "--device", "tpu", named="--device")
        self.refuse("generate", *MODEL, "--prompt", "a", "--host-expert-memory", "50%",
                    named=("--host-expert-memory", "--device cuda"))
        self.refuse("serve", *MODEL, "--log-level", "all", named="--log-level")
        self.refuse("generate", *MODEL, "--prompt", "a", "--log-level", "info",
                    named="--log-level")
        self.refuse("generate", *MODEL, "--tokens", "1,x", named=("--tokens", "x"))
        self.refuse("generate", *MODEL, "--tokens", "300", "--max-tokens", "1", named="300")
        self.refuse("generate", *MODEL, named="--prompt")
        self.refuse("generate", "--prompt", "a", named="--model")
        self.refuse("generate", *MODEL, "--prompt", "a", "--tokens", "1", named="one of")
        self.refuse("serve", *MODEL, "--listen", "nowhere", named=("--listen", "nowhere"))
        self.refuse("serve", *MODEL, "--listen", "0.0.0.0:0",
                    named=("--auth-token-file", "--allow-unauthenticated"))
        self.refuse("front", "--store", ":memory:", named="--worker")
        for memory in ("1KiB", "1000000GiB"):
            self.refuse("serve", *MODEL, "--kv-memory", memory, "--store", ":memory:",
                        named="--kv-memory")
        self.refuse("generate", "--server", "127.0.0.1:1", "--prompt", "a", "--threads", "2",
                    named=("--threads", "--server"))

    def test_a_config_file_holds_every_flag(self):
        folder = harness.scratch_folder()
        config = folder / "generate.toml"

        def write(text):
            config.write_text(text)
            return "--config", config

        flags = write(f'model = "{harness.LLAMA}"\nprompt = "Low tide"\nmax-tokens = 9\nseed = 4\n'
                      'temperature = 1.0\nstop = ["qqqq", "zzzz"]\njson = true\n')
        answer = json.loads(self.run_well("generate", *flags).stdout)
        self.assertEqual(len(answer["token_ids"]), 9)
        same = self.run_json("generate", *MODEL, "--prompt", "Low tide", "--max-tokens", "9",
                             "--seed", "4", "--temperature", "1")
        self.assertEqual(answer["token_ids"], same["token_ids"])
        fewer = json.loads(self.run_well("generate", *flags, "--max-tokens", "4").stdout)
        self.assertEqual(fewer["token_ids"], same["token_ids"][:4])
        for text, named in (("max-tokns = 9\n", ("line 1", "max-tokns", "max-tokens")),
                            ("\nmax-tokens = -9\n", ("line 2", "max-tokens", "-9")),
                            ("[server]\nlisten = 1\n", ("server",)),
                            ("max-tokens = \n", ("line 1", "TOML")),
                            ('ranks = 2\n', ("ranks", "not available yet"))):
            self.refuse("generate", *MODEL, "--prompt", "a", *write(text),
                        named=(str(config), *named))
        self.refuse("generate", "--config", folder / "none.toml", named="none.toml")


class FileCommandTest(CommandTest):

    def test_tokens_and_back(self):
        self.assertEqual(self.run_json("tokenize", *MODEL, "--text", TEXT), {"token_ids": IDS})
        self.assertEqual(self.run_json("tokenize", *MODEL, stdin=TEXT.encode()),
                         {"token_ids": IDS})
        file = harness.scratch_folder() / "text.txt"
        file.write_text(TEXT)
        self.assertEqual(self.run_json("tokenize", *MODEL, "--file", file), {"token_ids": IDS})
        self.assertEqual(self.run_json("detokenize", *MODEL, "--tokens", TOKENS), {"text": TEXT})
        plain = self.run_json("tokenize", *MODEL, "--text", "<|im_end|>")["token_ids"]
        special = self.run_json("tokenize", *MODEL, "--text", "<|im_end|>", "--special")
        self.assertGreater(len(plain), 1)
        self.assertEqual(len(special["token_ids"]), 1)
        self.refuse("detokenize", *MODEL, "--tokens", "300", named="300")
        # Bytes that are not UTF-8 are kept, and shown as U+FFFD in JSON.
        broken = self.run_json("tokenize", *MODEL, stdin=b"a\xff\xfe")
        self.assertEqual(broken, {"token_ids": [97, 255, 254]})
        self.assertEqual(self.run_json("detokenize", *MODEL, "--tokens", "97,255,254"),
                         {"text": "a\ufffd\ufffd"})

    def test_logits(self):
        folder = harness.scratch_folder()
        golden = numpy.load(harness.TINY / GOLDEN["logits"])
        outputs = []
        for number, flags in enumerate((["--chunk", "1"], ["--chunk", "7", "--threads", "2"],
                                        ["--isa", "portable"])):
            out = folder / f"{number}.npy"
            self.run_well("logits", *MODEL, "--exact", "--tokens", TOKENS, "--all", "--out", out,
                          *flags)
            outputs.append(numpy.load(out))
        self.assertEqual((outputs[0].shape, outputs[0].dtype.str), ((len(IDS), 300), "<f4"))
        self.assertLess(numpy.abs(outputs[0] - golden).max(), 1e-3)
        for output in outputs[1:]:
            self.assertTrue(numpy.array_equal(outputs[0], output), "bits differ")
        result = self.run_json("logits", *MODEL, "--exact", "--tokens", TOKENS,
                               "--out", folder / "last.npy", "--dump", folder / "dump")
        last = numpy.load(folder / "last.npy")
        self.assertEqual(last.shape, (300,))
        self.assertTrue(numpy.array_equal(last, outputs[0][-1]))
        self.assertEqual(result["vocab_size"], 300)
        for layer in range(3):
            dumped = numpy.load(folder / "dump" / f"layer.{layer}.npy")
            self.assertEqual(dumped.shape, (len(IDS), 64))
            self.assertTrue(numpy.isfinite(dumped).all())
        self.assertEqual(numpy.load(folder / "dump" / "norm.npy").shape, (1, 64))
        self.assertEqual(result["dump_files"], len(list((folder / "dump").iterdir())))
        self.refuse("logits", *MODEL, "--tokens", "1", "--dump", folder / "dump",
                    named=(str(folder / "dump"), "has files"))
        self.refuse("logits", *MODEL, "--tokens", "1", "--dump", folder / "last.npy", named="last.npy")
        self.refuse("logits", *MODEL, "--tokens", "1", named="--dump DIR")
        self.refuse("logits", *MODEL, "--tokens", "1,300", "--out", folder / "no.npy", named="300")
        self.refuse("logits", *MODEL, "--tokens", "1", "--out", folder / "no" / "no.npy",
                    named="no.npy")
        self.assertFalse((folder / "no.npy").exists())

    def test_inspect(self):
        for path in sorted(harness.TINY.glob("*.gguf")):
            described = json.loads(path.with_suffix(".json").read_text())
            found = self.run_json("inspect", "--model", path)
            self.assertTrue(found["supported"], path)
            self.assertEqual(found["architecture"], described["architecture"])
            self.assertEqual(found["vocab_size"], described["n_vocab"])
            types = {name.lower() for name in found["types"]}
            quants = described["weights"] == "quants"  # one type after the other, blocks of 256
            if quants:
                self.assertGreater(len(types), 8)
            else:
                self.assertIn(described["weights"].lower(), types)
            self.assertEqual(found["experts"] > 0, "moe" in path.name or "mixtral" in path.name)
            self.assertEqual(found["file_bytes"], path.stat().st_size)
            self.assertTrue(found["tokenizer"]["supported"])
            names = {tensor["name"]: tensor for tensor in found["tensors"]}
            self.assertEqual(names["token_embd.weight"]["shape"],
                             [256 if quants else 64, described["n_vocab"]])
            self.assertGreater(found["memory"]["weight_bytes"], 0)
        summary = self.run_well("inspect", *MODEL).stdout
        self.assertIn("llama", summary)
        self.assertNotIn("token_embd.weight", summary)
        table = self.run_well("inspect", *MODEL, "--tensors").stdout
        # The free memory may change in between.
        self.assertEqual(table.splitlines()[:20], summary.splitlines()[:20])
        self.assertGreater(table.index("token_embd.weight"), table.index("\nMemory\n"))

    def test_inspect_has_a_blank_after_each_label(self):
        text = self.run_well("inspect", "--model", harness.TINY / "qwen2moe_f32.gguf").stdout
        self.assertRegex(text, r"(?m)^  shared expert width +\d+$")

    def test_expert_memory_of_a_dense_model_says_that_it_has_no_effect(self):
        flags = ("--expert-memory", "1GiB", "--prompt", "a", "--max-tokens", "1")
        result = self.run_well("generate", *MODEL, *flags)
        self.assertIn(f"--expert-memory has no effect: {harness.LLAMA} has no experts",
                      result.stderr)
        result = self.run_well("generate", "--model", harness.MOE, *flags)
        self.assertNotIn("--expert-memory", result.stderr)
        server = harness.serve("--expert-memory", "1GiB", "--log-format", "json")
        self.addCleanup(server.kill)
        line = json.loads(server.stderr.splitlines()[0])
        self.assertEqual(line["level"], "warning")
        self.assertIn("--expert-memory has no effect", line["message"])


class GenerateTest(CommandTest):

    @classmethod
    def setUpClass(cls):
        cls.server = harness.serve()
        cls.addClassCleanup(cls.server.kill)
        cls.at_server = ("--server", cls.server.address)

    def test_golden_tokens(self):
        answer = self.run_json("generate", *MODEL, "--exact", "--tokens", TOKENS,
                               "--max-tokens", str(len(GOLDEN["greedy"]["ids"])))
        self.assertEqual(answer["token_ids"], GOLDEN["greedy"]["ids"])

    def test_in_process_and_by_server_alike(self):
        flags = ["--max-tokens", "40", "--temperature", "1", "--seed", "3", "--top-k", "50"]
        for source in (["--prompt", "Low tide"], ["--chat", "How deep?", "--system", "Be brief."],
                       ["--tokens", TOKENS]):
            here = self.run_json("generate", *MODEL, *source, *flags)
            there = self.run_json("generate", *self.at_server, *source, *flags)
            for answer in (here, there):
                self.assertEqual(set(answer),
                                 {"text", "token_ids", "finish_reason", "usage", "timing"})
                self.assertEqual(len(answer["token_ids"]), 40)
                self.assertEqual(answer["finish_reason"], "LENGTH")
                self.assertEqual(answer["usage"]["completion_tokens"], 40)
                self.assertGreaterEqual(answer["timing"]["messages"], 1)
                self.assertLessEqual(answer["timing"]["first_message_seconds"],
                                     answer["timing"]["total_seconds"])
            self.assertEqual(here["token_ids"], there["token_ids"])
            self.assertEqual(here["text"], there["text"])
            streamed = self.run_well("generate", *self.at_server, *source, *flags)
            self.assertEqual(streamed.stdout, here["text"] + "\n")
            self.assertIn("40 tokens", streamed.stderr)

    def test_text_streams_to_a_pipe(self):
        # On a busy machine, everything may be written before this process reads.
        harness.wait_met(lambda: self.pieces_of_a_stream() > 1, "text comes piece by piece")

    def pieces_of_a_stream(self):
        """Returns in how many pieces the text of a response arrives in a pipe."""
        command = [str(harness.BINARY), "generate", *self.at_server, "--prompt", "On and on",
                   "--max-tokens", "3000"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              env=harness.clean_environment()) as process:
            pieces = []
            while piece := os.read(process.stdout.fileno(), 1 << 20):
                pieces.append(piece)
            self.assertEqual(process.wait(60), 0)
        return len(pieces)

    def test_a_closed_pipe_is_a_failure_not_a_crash(self):
        # The pipe has no reader: its other end is closed before the first byte is written.
        reader, writer = os.pipe()
        os.close(reader)
        try:
            result = subprocess.run(
                [str(harness.BINARY), "generate", "--server", self.server.address, "--prompt", "a",
                 "--max-tokens", "300"], stdin=subprocess.DEVNULL, stdout=writer,
                stderr=subprocess.PIPE, text=True, timeout=60, env=harness.clean_environment())
        finally:
            os.close(writer)
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)

    def test_failures(self):
        self.refuse("generate", *self.at_server, "--prompt", "", named="text")
        self.refuse("generate", *self.at_server, "--prompt", "kelp " * 4096, named="4096")
        self.refuse("generate", *MODEL, "--prompt", "kelp " * 4096, named="4096")
        self.refuse("generate", "--server", "127.0.0.1:1", "--prompt", "a", code=1,
                    named="127.0.0.1:1")
        self.refuse("generate", *self.at_server, "--session", "bad name", "--prompt", "a",
                    named="session_id")

    def test_sessions(self):
        flags = ["--session", "of-the-cli", "--max-tokens", "30", *self.at_server]
        first = self.run_json("generate", "--prompt", "One.", *flags)
        second = self.run_json("generate", "--prompt", " Two.", *flags)
        self.assertGreater(second["usage"]["prompt_tokens"],
                           first["usage"]["prompt_tokens"] + len(first["token_ids"]))
        self.assertGreater(second["usage"]["cached_tokens"], 0)

    def test_chat(self):
        lines = b"Good evening\nHow deep is it?\n/exit\nnever asked\n"
        result = self.run_well("chat", *self.at_server, "--session", "evening",
                               "--max-tokens", "20", stdin=lines)
        client = harness.Client(self.server)
        self.addCleanup(client.close)
        turns = client.get_session("evening").turns
        self.assertEqual([turn.messages[0].content for turn in turns],
                         ["Good evening", "How deep is it?"])
        for turn in turns:
            self.assertIn(turn.messages[-1].content, result.stdout)
        local = self.run_well("chat", *MODEL, "--max-tokens", "20", stdin=lines)
        self.assertIn(turns[0].messages[-1].content, local.stdout)
        self.assertIn(turns[1].messages[-1].content, local.stdout)

    def test_chat_commands(self):
        for end in ("/quit", " /exit "):
            result = self.run_well("chat", *self.at_server, "--max-tokens", "5",
                                   stdin=f"/help\nGood evening\n{end}\nnever asked\n".encode())
            self.assertEqual(result.stderr.count("/quit, /exit "), 1, result.stderr)
            self.assertEqual(len(re.findall(r"\[\d+ tokens,", result.stderr)), 1, result.stderr)

    def test_stats(self):
        self.run_json("generate", *self.at_server, "--prompt", "Count me", "--max-tokens", "5")
        stats = self.run_json("stats", *self.at_server, "--once")
        self.assertEqual(set(stats), {"workers", "front"})
        self.assertGreaterEqual(stats["workers"][0]["generated_tokens_total"], 5)
        self.assertGreaterEqual(stats["front"]["requests_total"], 1)
        table = self.run_well("stats", *self.at_server, "--once").stdout
        self.assertIn("KV blocks", table)
        self.refuse("stats", "--server", "127.0.0.1:1", "--once", code=1, named="127.0.0.1:1")


class ServeOutputTest(CommandTest):

    def test_json_names_the_endpoint(self):
        server = harness.serve("--json")
        self.addCleanup(server.kill)
        shown = json.loads(server.stdout)
        self.assertEqual((shown["grpc"], shown["role"]), (server.address, "serve"))

    def test_the_default_store_is_made(self):
        home = harness.scratch_folder()
        process = subprocess.Popen([str(harness.BINARY), "serve", "--model", str(harness.LLAMA),
                                    "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"],
                                   stdout=subprocess.PIPE,
                                   stderr=subprocess.DEVNULL,
                                   env={**harness.clean_environment(), "HOME": str(home)})
        try:
            self.assertIn(b"127.0.0.1:", process.stdout.readline())
            self.assertTrue((home / ".local/state/tidepool/sessions.db").exists())
        finally:
            process.kill()
            process.communicate()


class TroubleTest(CommandTest):

    def start_front(self, *workers, more=()):
        """Starts a front that may have no working worker, and returns it with its address."""
        flags = [flag for address in workers for flag in ("--worker", address)] + list(more)
        process = harness.Process("front", *flags, "--store", ":memory:", "--listen",
                                  "127.0.0.1:0")
        self.addCleanup(process.kill)
        address = harness.wait_until(
            lambda: re.search(r"gRPC on (127\.0\.0\.1:\d+),", process.stdout),
            lambda: f"the front prints its endpoint: {process.stderr}",
            harness.START_TIMEOUT).group(1)
        return process, address

    def test_a_front_without_workers(self):
        process, address = self.start_front("127.0.0.1:1")
        told = "worker at 127.0.0.1:1 cannot be watched"
        harness.wait_until(lambda: told in process.stderr, "the front tells what is missing")

        def tells_why_it_waits():
            result = run_tidepool("generate", "--server", address, "--prompt", "a",
                                  "--timeout", "1s")
            self.assertEqual(result.returncode, 1, result.stderr)
            waiting, end = result.stderr.splitlines()
            self.assertIn(f"waiting for a worker of {address}: ", waiting)
            self.assertIn(address, end)
            return f"{address}: 127.0.0.1:1: " in waiting
        # On a busy machine, the front may hear from its worker after more than a second.
        harness.wait_met(tells_why_it_waits, "the worker's trouble is reported")
        result = run_tidepool("stats", "--once", "--server", address)
        self.assertEqual(result.returncode, 1)
        self.assertIn("does not respond", result.stdout)
        self.assertEqual(result.stderr, f"tidepool: {address}: no worker responds\n")
        process.stop()
        self.assertEqual(process.stderr.count(told), 1)

    def test_trouble_is_logged_as_a_warning(self):
        told = "worker at 127.0.0.1:1 cannot be watched"
        warned, _ = self.start_front("127.0.0.1:1", more=("--log-level", "warn"))
        silent, _ = self.start_front("127.0.0.1:1", more=("--log-level", "error"))
        harness.wait_until(lambda: told in warned.stderr, "the front tells what is missing")
        for process in (warned, silent):
            process.stop()
        self.assertEqual(silent.stderr, "")
        self.assertEqual(len(warned.stderr.splitlines()), 1, warned.stderr)
        self.assertRegex(warned.stderr, r" warn(ing)? worker at ")

    def test_a_debug_log_reports_runs(self):
        worker = harness.worker("--name", "w1")
        self.addCleanup(worker.kill)
        front = harness.front([worker], "--log-level", "debug")
        self.addCleanup(front.kill)
        run_tidepool("generate", "--server", front.address, "--prompt", "a", "--max-tokens", "2")
        harness.wait_until(lambda: "at w1 has ended" in front.stderr, "the run's end is logged")
        self.assertRegex(front.stderr, r" debug run \d+ of \d+ prompt tokens begins at w1\n")

    def test_a_worker_that_is_none(self):
        _, other = self.start_front("127.0.0.1:1")
        process, address = self.start_front(other)
        told = f"worker at {other} cannot be watched: the endpoint is not a Tidepool worker"
        harness.wait_until(lambda: told in process.stderr, "the front tells what is wrong")
        self.refuse("generate", "--server", "127.0.0.1:1", "--prompt", "a", code=1,
                    named="no server answers at 127.0.0.1:1")

    def test_clients_of_a_worker(self):
        worker = harness.worker()
        self.addCleanup(worker.kill)
        for command in (["generate", "--prompt", "a"], ["chat"]):
            self.refuse(*command, "--server", worker.address,
                        named=(worker.address, "use the address of a front"))

    def test_chats_that_come_to_nothing(self):
        # No input prompt is shown, because the server cannot answer a message.
        self.refuse("chat", "--server", "127.0.0.1:1", code=1, stdin=b"Hello\n",
                    named="no server answers")
        long = b"kelp " * 4096 + b"\n"
        failed = run_tidepool("chat", *MODEL, "--max-tokens", "2", stdin=long)
        self.assertEqual(failed.returncode, 1, failed.stderr)
        self.assertIn("4096", failed.stderr)
        retried = run_tidepool("chat", *MODEL, "--max-tokens", "2", stdin=long + b"Hello\n")
        self.assertEqual(retried.returncode, 0, retried.stderr)

    def test_a_failed_start_leaves_no_store(self):
        first = harness.serve()
        self.addCleanup(first.kill)
        folder = harness.scratch_folder()
        for arguments in (["serve", *MODEL, "--listen", first.address],
                          ["serve", "--model", folder / "none.gguf"],
                          ["front", "--worker", "127.0.0.1:1", "--listen", first.address]):
            result = run_tidepool(*arguments, "--store", folder / "new.db")
            self.assertNotEqual(result.returncode, 0)
            self.assertEqual(sorted(folder.iterdir()), [], arguments)
        # An existing store is kept.
        kept = harness.serve(store=folder / "kept.db")
        kept.stop()
        before = sorted(folder.iterdir())
        self.assertIn(folder / "kept.db", before)
        run_tidepool("serve", *MODEL, "--listen", first.address, "--store", folder / "kept.db")
        self.assertIn(folder / "kept.db", sorted(folder.iterdir()))

    def test_an_answer_that_the_context_ends(self):
        result = self.run_well("generate", *MODEL, "--prompt", "a", "--context", "16",
                               "--max-tokens", "100")
        self.assertIn("the context was full before --max-tokens 100", result.stderr)
        whole = self.run_well("generate", *MODEL, "--prompt", "a", "--max-tokens", "5")
        self.assertNotIn("context", whole.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
