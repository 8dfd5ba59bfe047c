"""Tests that k8s/image/Dockerfile installs the libraries that the binary links, and that it
agrees with the manifests."""

import pathlib
import re
import subprocess
import unittest

import k8s_case
import kustomize

DOCKERFILE = k8s_case.K8S / "image" / "Dockerfile"
IN_EVERY_IMAGE = {"libc6"}


def stages():
    """Returns the instructions of each stage of the Dockerfile, as (word, rest)."""
    text = re.sub(r"^#.*\n", "", DOCKERFILE.read_text(), flags=re.MULTILINE)
    lines = re.sub(r"\\\n", " ", text).splitlines()
    found = []
    for word, _, rest in (line.partition(" ") for line in lines if line):
        if word == "FROM":
            found.append([])
        found[-1].append((word, rest))
    return found


def instruction(stage, wanted):
    (rest,) = [rest for word, rest in stage if word == wanted]
    return rest


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


def packages_of(libraries):
    """{library: the Debian package that contains it}. A file is looked up below /lib and
    /usr/lib."""
    paths = {path: library for library in libraries
             for path in (library, f"/usr{library}", library.removeprefix("/usr"))}
    found = subprocess.run(["dpkg-query", "-S", *paths], capture_output=True, text=True, timeout=60)
    rows = re.findall(r"^([^:\s]+)(?::\S+)?: (/\S+)$", found.stdout, re.MULTILINE)
    return {paths[path]: package for package, path in rows}


def needs(packages):
    """Returns the packages and all their dependencies, as installed here. Of alternatives, the
    first one counts."""
    depends = {}
    for line in run("dpkg-query", "-W", "-f", "${Package}\t${Depends}\n").splitlines():
        package, _, those = line.partition("\t")
        depends[package] = {re.split(r"[\s|:(]", one.strip())[0] for one in those.split(",")}
    seen, waiting = set(), set(packages)
    while waiting:
        package = waiting.pop()
        seen.add(package)
        waiting |= depends.get(package, set()) - seen
    return seen


class ImageTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.build, cls.final = stages()
        cls.binary = k8s_case.TIDEPOOL.resolve()
        installed = re.search(r"apt-get install -y --no-install-recommends (.*?) &&",
                              instruction(cls.final, "RUN"))
        cls.packages = installed[1].split()

    def test_packages_are_those_that_the_binary_links(self):
        loaded = dict(re.findall(r"(\S+) => (/\S+)", run("ldd", str(self.binary))))
        needed = re.findall(r"NEEDED +(\S+)", run("objdump", "-p", str(self.binary)))
        self.assertGreater(len(needed), 10)
        owners = packages_of(loaded.values())
        self.assertEqual(set(loaded.values()) - set(owners), set(), "no package holds these")
        direct = {owners[loaded[library]] for library in needed if library in loaded}
        self.assertEqual(set(self.packages), direct - IN_EVERY_IMAGE)
        self.assertEqual(self.packages, sorted(self.packages))
        self.assertLessEqual(set(owners.values()), needs(self.packages))

    def test_the_release_is_that_of_the_machine_that_tests_it(self):
        release = pathlib.Path("/etc/os-release").read_text()
        version = re.search(r'^VERSION_ID="(\d+)"$', release, re.MULTILINE)[1]
        for stage in (self.build, self.final):
            self.assertRegex(instruction(stage, "FROM"),
                             rf"^docker.io/library/debian:{version}-slim\b")

    def test_the_pods_run_this_image(self):
        rendered = k8s_case.Rendered(k8s_case.K8S / "base")
        ports = set()
        for workload in rendered.workloads():
            context = kustomize.pod_spec(workload)["securityContext"]
            self.assertEqual(instruction(self.final, "USER"),
                             f"{context['runAsUser']}:{context['runAsGroup']}")
            container = k8s_case.container_of(workload)
            self.assertNotIn("command", container)
            ports |= {port["containerPort"] for port in container["ports"]}
        self.assertEqual(instruction(self.final, "ENTRYPOINT"), '["tidepool"]')
        self.assertEqual(set(map(int, instruction(self.final, "EXPOSE").split())), ports)


if __name__ == "__main__":
    unittest.main(verbosity=2)
