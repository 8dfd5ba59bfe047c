"""Runs the containers' commands as processes of this machine, with the files that they mount.

The test replaces only what a cluster provides: addresses, mounted folders, pod names and the DNS
name of the headless Service, which nss_wrapper looks up in a file. It calls the probes of the
manifests as a kubelet would.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path.cwd() / "tests" / "integration"))

import harness  # noqa: E402
import k8s_case  # noqa: E402
from certificates import Certificates, pair_flags  # noqa: E402


class Cluster:
    """The workers and fronts of one folder, and the folders that replace their volumes."""

    def __init__(self, test, rendered):
        self.test = test
        self.rendered = rendered
        self.root = harness.scratch_folder()
        found = {k8s_case.container_of(one)["args"][0]: one for one in rendered.workloads()
                 if k8s_case.is_tidepool(one)}
        self.front, self.worker = found["front"], found["worker"]
        for workload in rendered.workloads():
            for mount in k8s_case.container_of(workload)["volumeMounts"]:
                self.path(mount["mountPath"]).mkdir(parents=True, exist_ok=True)
        model = self.path(rendered.config(self.worker)["model"])
        shutil.copy(harness.MOE, model)
        # Addresses by their name in a configuration.
        self.addresses = {}
        self.hosts = self.root / "hosts"
        self.service = self.worker["spec"]["serviceName"]
        port = k8s_case.ports_of(self.worker)["grpc"]
        self.worker_port, self.worker_probes = harness.free_port(), harness.free_port()
        self.addresses[f"{self.service}:{port}"] = f"{self.service}:{self.worker_port}"
        self.workers = {}
        self.start_store()

    def path(self, inside):
        """The path on this machine for a path inside a container."""
        return self.root / inside.lstrip("/")

    def words(self, workload, pod):
        """The arguments of the pod's process. They include the configuration file of its
        container."""
        text, path = self.rendered.mounted_config(workload)
        for key in ("model", "cache-dir", "store"):
            value = self.rendered.config(workload).get(key, "")
            if value.startswith("/"):
                text = text.replace(f'"{value}"', f'"{self.path(value)}"')
        for name, address in self.addresses.items():
            text = re.sub(rf'(?<=["/]){re.escape(name)}(?=")', address, text)
        config = self.path(path).with_name(f"{pod}.toml")
        config.write_text(text)
        return [word.replace("$(POD_NAME)", pod).replace(path, str(config))
                for word in k8s_case.container_of(workload)["args"]]

    def start_front(self, pod, *more, awaited="readiness"):
        process = harness.Server(*self.words(self.front, pod), "--probe-listen", "127.0.0.1:0",
                                 *more, awaited=awaited,
                                 environment={"LD_PRELOAD": "libnss_wrapper.so",
                                              "NSS_WRAPPER_HOSTS": str(self.hosts)})
        self.test.addCleanup(process.kill)
        return process

    def start_store(self):
        """If the folder has Redis, starts a Redis server with its configuration and checks its
        probes."""
        for workload in self.rendered.workloads():
            container = k8s_case.container_of(workload)
            if container.get("command", [""])[0] != "redis-server":
                continue
            text, path = self.rendered.mounted_config(workload)
            port, (inside,) = harness.free_port(), container["ports"]
            for setting, here in ((f"port {inside['containerPort']}", f"port {port}"),
                                  ("bind * -::*", "bind 127.0.0.1"),
                                  ("dir /data", f"dir {self.path('/data')}")):
                assert text.count(f"\n{setting}\n") == 1, setting
                text = text.replace(f"\n{setting}\n", f"\n{here}\n")
            config = self.path(path)
            config.write_text(text)
            process = subprocess.Popen(["redis-server", str(config)], stdout=subprocess.DEVNULL)
            self.test.addCleanup(process.wait)
            self.test.addCleanup(process.terminate)
            harness.wait_until(lambda: harness.answers(port), "Redis listens")
            for kind in ("startupProbe", "readinessProbe"):
                shell, flag, script = container[kind]["exec"]["command"]
                probe = [shell, flag, script.replace("redis-cli", f"redis-cli -p {port}")]
                harness.wait_until(lambda: subprocess.run(probe).returncode == 0, kind)
            name = f"{workload['spec']['serviceName']}:{inside['containerPort']}"
            self.addresses[name] = f"127.0.0.1:{port}"

    def start_worker(self, number, *more):
        """Starts a worker at its own address, because each pod has its own address."""
        pod, host = f"{self.worker['metadata']['name']}-{number}", f"127.0.0.{number + 1}"
        process = harness.Process(*self.words(self.worker, pod), "--listen",
                                  f"{host}:{self.worker_port}", "--probe-listen",
                                  f"{host}:{self.worker_probes}", *more)
        self.test.addCleanup(process.kill)
        process.address = f"{host}:{self.worker_port}"
        process.probe_address = f"{host}:{self.worker_probes}"
        self.workers[pod] = process
        return process

    def scale(self, replicas):
        """Starts the missing workers and gives the Service's name all their addresses."""
        for number in range(len(self.workers), replicas):
            self.start_worker(number)
        for process in self.workers.values():
            harness.wait_until(lambda: harness.health(process.address, "readiness"),
                               lambda: process.stderr, harness.START_TIMEOUT)
        part = self.hosts.with_name("part")
        part.write_text("".join(f"{process.address.partition(':')[0]} {self.service}\n"
                                for process in self.workers.values()))
        # nss_wrapper ignores changes within one second.
        os.utime(part, (replicas, replicas))
        part.rename(self.hosts)

    def probe(self, workload, process, kind):
        """Whether the container's probe succeeds for the process."""
        probe = k8s_case.container_of(workload)[kind]
        return harness.health(process.probe_address, probe["grpc"]["service"])


class ProcessesTest(k8s_case.K8sCase):

    @k8s_case.for_each_folder
    def test_pods_serve(self, rendered):
        cluster = Cluster(self, rendered)
        cluster.scale(cluster.worker["spec"]["replicas"])
        for process in cluster.workers.values():
            for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
                self.assertTrue(cluster.probe(cluster.worker, process, kind), kind)
        front = cluster.start_front("front-a")
        self.assertTrue(cluster.probe(cluster.front, front, "livenessProbe"))
        self.assertTrue(cluster.probe(cluster.front, front, "readinessProbe"))
        client = harness.Client(front)
        self.addCleanup(client.close)
        client.create_session("kept")
        first = client.generate(text="The harbour", session="kept", max_tokens=8)
        self.check_workers(cluster, client, front)

        # With more replicas, the front finds the new workers although only the Service's addresses
        # have changed.
        cluster.scale(cluster.worker["spec"]["replicas"] + 1)
        self.check_workers(cluster, client, front)

        # Every other pod can continue the conversation: a second front, or, if there is just one,
        # the one that replaces it.
        if cluster.front["spec"]["replicas"] == 1:
            self.assertEqual(front.stop(), 0, front.stderr)
        again = cluster.start_front("front-b")
        client = harness.Client(again)
        self.addCleanup(client.close)
        self.assertEqual(list(client.get_session("kept").token_ids)[-8:], first.ids)
        client.generate(text=" is deep", session="kept", max_tokens=8)
        self.assertEqual(client.get_session("kept").turn_count, 2)

        # Without workers, a front is live but not ready.
        for process in cluster.workers.values():
            self.assertEqual(process.stop(), 0, process.stderr)
        harness.wait_until(lambda: not cluster.probe(cluster.front, again, "readinessProbe"),
                           "the front is not ready")
        self.assertTrue(cluster.probe(cluster.front, again, "livenessProbe"))
        self.assertEqual(again.stop(), 0, again.stderr)

    def check_workers(self, cluster, client, front):
        """Checks that, after one or two look-ups, the front knows all pods by name, and that they
        respond."""
        harness.wait_until(
            lambda: ({one.worker_id for one in client.stats().workers if one.status_code == 0}
                     == set(cluster.workers)),
            lambda: f"{sorted(cluster.workers)}: {client.stats()} {front.stderr}")

    def test_probes_do_not_mind_tls(self):
        cluster = Cluster(self, self.all[0])
        tls = pair_flags("tls", Certificates().issue("server", "127.0.0.1"))
        worker = cluster.start_worker(0, *tls)
        harness.wait_until(lambda: cluster.probe(cluster.worker, worker, "readinessProbe"),
                           lambda: worker.stderr, harness.START_TIMEOUT)
        cluster.hosts.write_text(f"127.0.0.1 {cluster.service}\n")
        front = cluster.start_front("front-a", *tls, awaited="liveness")
        for workload, process in ((cluster.worker, worker), (cluster.front, front)):
            for kind in ("livenessProbe", "readinessProbe"):
                # The front connects to the worker without TLS and fails: it is live but not ready.
                ready = process is worker or kind == "livenessProbe"
                self.assertEqual(cluster.probe(workload, process, kind), ready, kind)
            self.assertFalse(harness.health(process.address, "liveness"), "its port is TLS's")

    def test_a_redis_that_could_forget_is_refused(self):
        rendered = next(one for one in self.all if one.name == "overlays/redis")
        cluster = Cluster(self, rendered)
        (address,) = [one for name, one in cluster.addresses.items() if "redis" in name]
        port = address.rpartition(":")[2]
        subprocess.run(["redis-cli", "-p", port, "config", "set", "appendfsync", "everysec"],
                       check=True, stdout=subprocess.DEVNULL, timeout=60)
        addresses = [word for flag in ("--listen", "--http", "--probe-listen")
                     for word in (flag, "127.0.0.1:0")]
        result = harness.run_tidepool(*cluster.words(cluster.front, "front-a"), *addresses)
        self.assertEqual(result.returncode, 1, result.stderr)
        for part in ("appendfsync is everysec", "always", "--durability power"):
            self.assertIn(part, result.stderr)

    def test_a_wrong_configuration_is_refused(self):
        cluster = Cluster(self, self.all[0])
        text, path = self.all[0].mounted_config(cluster.front)
        config = cluster.path(path)
        config.write_text(text.replace("drain-timeout", "drain-timeouts"))
        result = harness.run_tidepool("front", f"--config={config}")
        self.assertEqual(result.returncode, 2)
        self.assertIn("drain-timeouts", result.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
