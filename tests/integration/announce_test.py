"""The example call that servers print at the start works unchanged, with any kind of access
control."""

import json
import os
import re
import subprocess
import unittest

import harness
from certificates import Certificates, pair_flags
from tokens import Tokens


class AnnounceTest(unittest.TestCase):

    def setUp(self):
        self.folder = harness.scratch_folder()
        (self.folder / "grpcurl").symlink_to(os.environ["TIDEPOOL_GRPCURL"])
        self.tokens = Tokens()

    def start(self, command, *arguments):
        server = command(*arguments)
        self.addCleanup(server.kill)
        return server

    def try_it(self, server, token=""):
        """Runs the printed call in the folder with its files, and returns its output."""
        call = re.search(r"^Try:\n  (.*)\n", server.stdout, re.MULTILINE)[1]
        environment = harness.clean_environment(TOKEN=token)
        environment["PATH"] = f"{self.folder}:{environment['PATH']}"
        result = subprocess.run(["sh", "-c", call], cwd=self.folder, capture_output=True, text=True,
                                timeout=60, env=environment)
        self.assertEqual(result.returncode, 0, f"{call}\n{result.stdout}{result.stderr}")
        return result.stdout

    def lay_out(self, certificates):
        """Writes the files that the call names."""
        cert, key = certificates.issue("client", "front.example")
        for name, file in (("ca.pem", certificates.ca), ("cert.pem", cert), ("key.pem", key)):
            (self.folder / name).write_bytes(file.read_bytes())

    def test_without_anything(self):
        server = self.start(harness.serve)
        self.assertIn('"finish_reason": "LENGTH"', self.try_it(server))
        self.assertIn("workers", json.loads(self.try_it(self.start(harness.worker))))

    def test_how_many_experts_are_in_memory(self):
        # The server writes its pack here, not next to the model that all tests share.
        server = self.start(lambda *flags: harness.serve(*flags, model=harness.MOE),
                            "--expert-memory", "75%", "--offload-policy", "lru", "--cache-dir",
                            self.folder)
        client = harness.Client(server)
        self.addCleanup(client.close)
        offload = client.worker_stats().offload
        self.assertLess(offload.slots, offload.experts)
        self.assertRegex(server.stdout, rf"experts +{offload.slots} of {offload.experts} in .* "
                                        r"of memory, the others read as needed \(lru\)")

    def test_with_tls_client_certificates_tokens_and_ports_of_their_own(self):
        certificates = Certificates()
        self.lay_out(certificates)
        alice, ops = self.tokens.new("alice"), self.tokens.new("ops", "admin")
        flags = (*pair_flags("tls", certificates.issue("server", "127.0.0.1")), "--tls-client-ca",
                 certificates.ca, "--auth-token-file", self.tokens.path, "--admin-listen",
                 "127.0.0.1:0", "--probe-listen", "127.0.0.1:0")
        server = self.start(harness.serve, *flags)
        self.assertIn('"finish_reason": "LENGTH"', self.try_it(server, alice))
        self.assertIn("gRPC over TLS on", server.stdout)
        self.assertRegex(server.stdout, r"HTTP +127\.0\.0\.1:\d+ over TLS")
        worker = self.start(harness.worker, *flags)
        self.assertIn("workers", json.loads(self.try_it(worker, ops)))

    def test_a_worker_that_knows_its_fronts_by_their_certificates(self):
        certificates = Certificates()
        self.lay_out(certificates)
        worker = self.start(harness.worker, *pair_flags("tls", certificates.issue(
            "server", "127.0.0.1")), "--tls-client-ca", certificates.ca, "--front-name",
            "front.example", "--probe-listen", "127.0.0.1:0")
        self.assertIn("workers", json.loads(self.try_it(worker)))


if __name__ == "__main__":
    unittest.main(verbosity=2)
