"""Code that the tests of k8s/ share: the list of folders, their rendered manifests, and helpers to
read them."""

import functools
import pathlib
import re
import shutil
import subprocess
import tomllib
import unittest

import yaml

import kustomize

RUNFILES = pathlib.Path.cwd()
K8S = RUNFILES / "k8s"
FOLDERS = sorted(path.parent for path in K8S.rglob("kustomization.yaml"))
TIDEPOOL = RUNFILES / "service" / "tidepool"
CONFIG_FLAG = "--config="


def matches(selector, labels):
    return all(labels.get(key) == value for key, value in selector.items())


def run_tidepool(*arguments):
    return subprocess.run([str(TIDEPOOL), *arguments], capture_output=True, text=True, timeout=60,
                          check=True).stdout


def find_kubectl():
    """Returns this machine's kubectl if it is new enough for k8s/, else None."""
    program = shutil.which("kubectl")
    if program is None:
        return None
    said = subprocess.run([program, "version", "--client"], capture_output=True, text=True,
                          timeout=60).stdout
    version = re.search(r"Kustomize Version: v(\d+)", said)
    return program if version and int(version[1]) >= 4 else None


def kubectl_kustomize(folder):
    """Does the same as kustomize.render, but with kubectl itself, which must print no warning."""
    result = subprocess.run([find_kubectl(), "kustomize", str(folder)], capture_output=True,
                            text=True, timeout=60)
    assert (result.returncode, result.stderr) == (0, ""), result
    return {kustomize.identity(one): one for one in yaml.safe_load_all(result.stdout)}


def container_of(resource):
    """Returns the only container."""
    containers = kustomize.pod_spec(resource)["containers"]
    assert len(containers) == 1, containers
    return containers[0]


def ports_of(resource):
    """{name: number} of the container's ports."""
    return {port["name"]: port["containerPort"] for port in container_of(resource)["ports"]}


def is_tidepool(resource):
    """Returns whether the resource runs a command of the tidepool binary."""
    return (resource["kind"] in ("Deployment", "StatefulSet")
            and container_of(resource)["image"].partition(":")[0] == "tidepool")


class Rendered:
    """One folder's resources."""

    def __init__(self, folder):
        self.name = str(folder.relative_to(K8S))
        self.resources = kustomize.render(folder)

    def of_kind(self, *kinds):
        return [resource for (kind, _), resource in self.resources.items() if kind in kinds]

    def get(self, kind, name):
        return self.resources[(kind, name)]

    def workloads(self):
        return self.of_kind("Deployment", "StatefulSet")

    def workload_with(self, labels):
        found = [one for one in self.workloads()
                 if matches(labels, one["spec"]["template"]["metadata"]["labels"])]
        assert len(found) == 1, f"{self.name}: {labels} selects {len(found)} workloads"
        return found[0]

    def mounted_config(self, resource):
        """(text, path) of the configuration file of the container: the value of --config, or the
        last word of the container's own command. It is found through mount, volume and ConfigMap."""
        container = container_of(resource)
        paths = [word.removeprefix(CONFIG_FLAG) for word in container.get("args", [])
                 if word.startswith(CONFIG_FLAG)] or container["command"][-1:]
        assert len(paths) == 1, paths
        folder, _, file = paths[0].rpartition("/")
        mount = next(one for one in container["volumeMounts"] if one["mountPath"] == folder)
        volume = next(one for one in kustomize.pod_spec(resource)["volumes"]
                      if one["name"] == mount["name"])
        return self.get("ConfigMap", volume["configMap"]["name"])["data"][file], paths[0]

    def config(self, resource):
        """Returns the flags in the configuration file."""
        return tomllib.loads(self.mounted_config(resource)[0])


class K8sCase(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.all = [Rendered(folder) for folder in FOLDERS]
        assert len(cls.all) >= 2, FOLDERS


def for_each_folder(test):
    """Runs test(self, rendered) for every folder, each as a subtest."""

    @functools.wraps(test)
    def run(self):
        for rendered in self.all:
            with self.subTest(folder=rendered.name):
                test(self, rendered)
    return run
