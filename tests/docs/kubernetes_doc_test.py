"""Checks docs/kubernetes.md: its sh blocks run, its overlay renders, and everything that its other
commands name exists. Blocks of the language `console` need a cluster or a container runtime, and
are not run.
"""

import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import unittest

import grpc

RUNFILES = pathlib.Path.cwd()
sys.path[:0] = [str(RUNFILES / "tests" / "integration"), str(RUNFILES / "tests" / "k8s")]

import harness  # noqa: E402
import k8s_case  # noqa: E402
import kustomize  # noqa: E402
from tokens import Bearer  # noqa: E402

GRPC, HTTP = "127.0.0.1:50051", "127.0.0.1:8080"
TEXT = (RUNFILES / "docs" / "kubernetes.md").read_text()


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


class KubernetesDocTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        # Copies the tree without symbolic links, like a checkout.
        cls.tree = harness.scratch_folder()
        shutil.copytree(RUNFILES / "k8s", cls.tree / "k8s")
        (overlay,) = blocks("yaml")
        (cls.tree / "deploy").mkdir()
        (cls.tree / "deploy" / "kustomization.yaml").write_text(overlay)
        cls.deployed = kustomize.render(cls.tree / "deploy")

    def test_commands(self):
        server = harness.serve(model=harness.smollm2(), threads=2)
        self.addCleanup(server.kill)
        programs = []
        for line in "".join(blocks("sh")).splitlines():
            if line.startswith(("tidepool ", "printf ")):
                continue  # test_tokens, test_a_password_for_redis
            line = line.replace(GRPC, server.address).replace(HTTP, server.http_address)
            program, *words = shlex.split(line)
            programs.append(program)
            if program == "kubectl":
                self.check_kustomize(*words)
                continue
            self.assertEqual(program, "tools/smoke", line)
            result = subprocess.run([sys.executable, str(RUNFILES / program), *words], timeout=240,
                                    capture_output=True, text=True, env=harness.clean_environment(
                                        PATH=self.path_with_grpcurl()))
            self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
            self.assertIn(" 0 failed", result.stdout)
        self.assertEqual(programs, ["kubectl", "tools/smoke"])

    def test_tokens(self):
        folder = harness.scratch_folder()
        (folder / "tidepool").symlink_to(harness.BINARY)
        for line in "".join(blocks("sh")).splitlines():
            if line.startswith("tidepool "):
                subprocess.run(["sh", "-ec", line], cwd=folder, timeout=60, check=True,
                               env=harness.clean_environment(PATH=f"{folder}:{os.environ['PATH']}"))
        secrets = self.secrets()
        front_lines, worker_lines, _ = blocks("toml")
        worker = self.start_with("worker", worker_lines, secrets, folder, model=harness.LLAMA)
        front = self.start_with("front", front_lines, secrets, folder, worker=worker.address)
        channel = grpc.intercept_channel(
            harness.open_channel(front.address),
            Bearer((folder / "ops.token").read_text().strip()))
        client = harness.Client(front, channel)
        self.assertEqual(len(client.generate(text="Low", max_tokens=2).ids), 2)
        self.assertEqual(harness.failure(harness.Client(front).stats)[0], "UNAUTHENTICATED")

    def secrets(self):
        """Returns the files of each Secret, in kubectl's form [KEY=]FILE."""
        secrets = {}
        for line in "".join(blocks("console")).splitlines():
            if " create secret generic " in line:
                name, *files = line.partition(" generic ")[2].split()
                secrets[name] = [file.removeprefix("--from-file=") for file in files]
        return secrets

    def test_a_password_for_redis(self):
        folder, mounted = harness.scratch_folder(), harness.scratch_folder()
        for line in "".join(blocks("sh")).splitlines():
            if line.startswith("printf "):
                subprocess.run(["sh", "-ec", line], cwd=folder, timeout=60, check=True)
        for file in self.secrets()["tidepool-redis-auth"]:
            key, _, source = file.partition("=")
            shutil.copy(folder / source, mounted / key)
        rendered = kustomize.render(self.tree / "k8s" / "overlays" / "redis")
        container = k8s_case.container_of(rendered[("StatefulSet", "tidepool-redis")])
        (config,) = [one["data"]["redis.conf"] for (kind, name), one in rendered.items()
                     if kind == "ConfigMap" and name.startswith("tidepool-redis-")]
        (mount,) = [one["mountPath"] for one in container["volumeMounts"] if one["name"] == "auth"]
        self.assertIn(f"\ninclude {mount}/*.conf\n", config)
        port = harness.free_port()
        for setting, here in (("port 6379", f"port {port}"), ("bind * -::*", "bind 127.0.0.1"),
                              ("dir /data", f"dir {folder}"), (mount, str(mounted))):
            config = config.replace(setting, here)
        (folder / "redis.conf").write_text(config)
        redis = subprocess.Popen(["redis-server", str(folder / "redis.conf")],
                                 stdout=subprocess.DEVNULL)
        self.addCleanup(redis.wait)
        self.addCleanup(redis.terminate)
        harness.wait_until(lambda: harness.answers(port), "Redis listens")

        # Runs the container's probe with and without the Secret's variable in its environment.
        (variable,) = container["env"]
        password = (mounted / variable["valueFrom"]["secretKeyRef"]["key"]).read_text()
        shell, flag, script = container["readinessProbe"]["exec"]["command"]
        probe = [shell, flag, script.replace("redis-cli", f"redis-cli -p {port}")]
        self.assertEqual(subprocess.run(probe, env={**os.environ, variable["name"]: password},
                                        check=False).returncode, 0)
        self.assertNotEqual(subprocess.run(probe, check=False).returncode, 0)

        *_, line = blocks("toml")
        file = folder / "front.toml"
        file.write_text(line.replace("/etc/tidepool-auth", str(folder))
                        + f'store = "redis://127.0.0.1:{port}"\nworker = "127.0.0.1:1"\n')
        front = harness.Server("front", "--config", file, awaited="liveness")
        self.addCleanup(front.kill)
        self.assertEqual(harness.failure(lambda: harness.Client(front).get_session("none"))[0],
                         "NOT_FOUND")
        refused = harness.run_tidepool("sessions", "verify", "--store", f"redis://127.0.0.1:{port}")
        self.assertEqual(refused.returncode, 1, refused.stderr)

    def start_with(self, role, lines, secrets, folder, **values):
        """Starts a pod's process. Its configuration has the lines of the page, and its Secret is
        mounted."""
        (config,) = [one["data"][f"{role}.toml"] for (kind, name), one in self.deployed.items()
                     if kind == "ConfigMap" and name.startswith(f"tidepool-{role}-")]
        self.assertEqual(config.count("allow-unauthenticated = true\n"), 1)
        config = config.replace("allow-unauthenticated = true\n", lines)
        (workload,) = [one for (kind, name), one in self.deployed.items()
                       if kind in ("Deployment", "StatefulSet") and name == f"tidepool-{role}"]
        spec = kustomize.pod_spec(workload)
        (secret,) = [volume["secret"]["secretName"] for volume in spec["volumes"]
                     if volume["name"] == "auth"]
        (mount,) = [one["mountPath"] for one in k8s_case.container_of(workload)["volumeMounts"]
                    if one["name"] == "auth"]
        mounted = folder / f"{role}-auth"
        mounted.mkdir()
        for file in secrets[secret]:
            name, _, source = file.rpartition("=")
            shutil.copy(folder / source, mounted / (name or source))
        config = config.replace(mount, str(mounted))
        # The other lines need a cluster: addresses, volumes.
        kept = [line for line in config.splitlines() if "auth" in line or "-token-" in line]
        file = folder / f"{role}.toml"
        file.write_text("".join(line + "\n" for line in kept)
                        + "".join(f'{key} = "{value}"\n' for key, value in values.items()))
        more = ("--store", ":memory:") if role == "front" else ()
        process = harness.Server(role, "--config", file, *more)
        self.addCleanup(process.kill)
        return process

    def path_with_grpcurl(self):
        return f"{pathlib.Path(os.environ['TIDEPOOL_GRPCURL']).parent}:{os.environ['PATH']}"

    def check_kustomize(self, command, folder):
        self.assertEqual(command, "kustomize")
        ours = kustomize.render(self.tree / folder)
        self.assertIn(("StatefulSet", "tidepool-worker"), ours)
        if k8s_case.find_kubectl():
            self.assertEqual(k8s_case.kubectl_kustomize(self.tree / folder), ours)

    def test_the_overlay(self):
        images = {k8s_case.container_of(one)["image"] for one in self.deployed.values()
                  if one["kind"] in ("Deployment", "StatefulSet")}
        self.assertEqual(images, {"registry.example/tidepool:0.1.0"})
        models = self.deployed[("PersistentVolumeClaim", "tidepool-models")]
        self.assertEqual(models["spec"]["storageClassName"], "shared-files")
        if k8s_case.find_kubectl():
            self.assertEqual(k8s_case.kubectl_kustomize(self.tree / "deploy"), self.deployed)

    def test_other_commands_name_existing_objects(self):
        (pod,) = kustomize.read_documents(self.tree / "k8s" / "model_copy.yaml")
        there = {f"{kind.lower()}/{name}"
                 for kind, name in [*self.deployed, kustomize.identity(pod)]}
        lines = "".join(blocks("console")).splitlines()
        self.assertGreaterEqual(len(lines), 8)
        image = "registry.example/tidepool:0.1.0"
        for line in lines:
            self.assertTrue(line.startswith("$ "), line)
            program, *words = shlex.split(line.removeprefix("$ "))
            self.assertIn(program, ("docker", "kubectl"))
            if program == "docker":
                self.assertIn(image, words)
            if "-n" in words:
                self.assertIn(("Namespace", words[words.index("-n") + 1]), self.deployed)
            for flag in ("-f", "-k"):
                if flag in words:
                    self.assertTrue((self.tree / words[words.index(flag) + 1]).exists(), line)
            for word in words:
                if re.fullmatch(r"(pod|service|deployment|statefulset)/[a-z-]+", word):
                    self.assertIn(word, there, line)
            if "port-forward" in words:
                ports = self.deployed[("Service", "tidepool")]["spec"]["ports"]
                self.assertEqual([str(port["port"]) for port in ports], words[-2:])
            if "cp" in words:
                name, _, path = words[-1].partition(":")
                self.assertEqual((name, path), (pod["metadata"]["name"], self.model_path()))

    def model_path(self):
        (data,) = [one["data"] for (kind, name), one in self.deployed.items()
                   if kind == "ConfigMap" and name.startswith("tidepool-worker-")]
        return re.search(r'^model = "(.*)"$', data["worker.toml"], re.MULTILINE)[1]

    def test_folders_and_figures(self):
        rows = set(re.findall(r"^\| `(k8s/\S+)` \|", TEXT, re.MULTILINE))
        self.assertEqual(rows, {f"k8s/{one.relative_to(k8s_case.K8S)}"
                                for one in k8s_case.FOLDERS})
        for folder, cpus, memory in (("base", "1", 4), ("overlays/cpu", "8", 32)):
            rendered = kustomize.render(self.tree / "k8s" / folder)
            worker = rendered[("StatefulSet", "tidepool-worker")]
            resources = k8s_case.container_of(worker)["resources"]
            self.assertEqual(resources["requests"]["cpu"], cpus)
            self.assertEqual(resources["limits"]["memory"], f"{memory}Gi")
            self.assertIn(f"{memory} GiB", TEXT)


if __name__ == "__main__":
    unittest.main(verbosity=2)
