"""Checks the manifests of k8s/ against the schemas of Kubernetes, its restricted pod standard,
the tidepool binary and each other."""

import copy
import json
import pathlib
import re
import shutil
import tempfile
import unittest

import kubernetes_validate
import yaml

import k8s_case
import kustomize

# The first version in which all features used here are stable (gRPC probes), and the latest known
# version.
KUBERNETES_VERSIONS = ("1.27.0", kubernetes_validate.latest_version())
PROBES = "probes"
COPY_POD = k8s_case.K8S / "model_copy.yaml"


def port_of(address):
    return int(address.rpartition(":")[2])


def seconds(text):
    assert re.fullmatch(r"\d+s", text), text
    return int(text[:-1])


class SchemaTest(k8s_case.K8sCase):

    @k8s_case.for_each_folder
    def test_every_manifest_is_valid(self, rendered):
        for resource in rendered.resources.values():
            for version in KUBERNETES_VERSIONS:
                kubernetes_validate.validate(resource, version, strict=True)

    def test_the_copying_pod_is_valid(self):
        (pod,) = kustomize.read_documents(COPY_POD)
        for version in KUBERNETES_VERSIONS:
            kubernetes_validate.validate(pod, version, strict=True)
        (volume,) = pod["spec"]["volumes"]
        self.all[0].get("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"])

    def test_invalid_manifests_are_found(self):
        good = self.all[0].of_kind("Deployment")[0]
        for path, value in ((("spec", "replica"), 1), (("spec", "replicas"), "one"),
                            (("spec", "template", "spec", "containers"), {})):
            bad = copy.deepcopy(good)
            below = bad
            for key in path[:-1]:
                below = below[key]
            below[path[-1]] = value
            with self.assertRaises(kubernetes_validate.ValidationError, msg=path):
                kubernetes_validate.validate(bad, KUBERNETES_VERSIONS[-1], strict=True)

    def test_every_file_is_used(self):
        used = {COPY_POD}
        for folder in k8s_case.FOLDERS:
            settings = yaml.safe_load((folder / "kustomization.yaml").read_text())
            used.add(folder / "kustomization.yaml")
            used |= {folder / name for name in settings.get("resources", [])}
            used |= {folder / patch["path"] for patch in settings.get("patches", [])}
            used |= {folder / file for one in settings.get("configMapGenerator", [])
                     for file in one["files"]}
        there = {path for path in k8s_case.K8S.rglob("*")
                 if path.is_file() and path.suffix in (".yaml", ".toml", ".conf")}
        self.assertEqual(there - used, set())


class KustomizeTest(k8s_case.K8sCase):

    @unittest.skipUnless(k8s_case.find_kubectl(), "no kubectl here that knows kustomize 4 or later")
    @k8s_case.for_each_folder
    def test_kubectl_makes_the_same(self, rendered):
        with tempfile.TemporaryDirectory() as scratch:
            # kubectl does not follow links, and Bazel's folders consist of links.
            folder = pathlib.Path(scratch) / "k8s"
            shutil.copytree(k8s_case.K8S, folder)
            self.assertEqual(k8s_case.kubectl_kustomize(folder / rendered.name), rendered.resources)

    def render(self, kustomization, **files):
        with tempfile.TemporaryDirectory() as scratch:
            folder = pathlib.Path(scratch)
            (folder / "kustomization.yaml").write_text(json.dumps(kustomization))
            for name, content in files.items():
                (folder / f"{name}.yaml").write_text(content)
            return kustomize.render(folder)

    def test_unresolved_references_are_found(self):
        one = "kind: Service\nmetadata: {name: a}\nspec: {x: 1, y: 2}"
        other = one.replace("name: a", "name: b")
        self.assertEqual(len(self.render({"resources": ["one.yaml"]}, one=one)), 1)
        for kustomization, said in (
                ({"resources": ["two.yaml"]}, "no two.yaml"),
                ({"resources": ["one.yaml", "one.yaml"]}, "twice"),
                ({"resources": ["one.yaml"], "nameprefix": "x"}, "nameprefix"),
                ({"resources": ["one.yaml"], "patches": [{"path": "other.yaml"}]}, "'b'"),
                ({"resources": ["double.yaml"]}, "y is there twice"),
                ({"configMapGenerator": [{"name": "c", "behavior": "replace", "files": []}]},
                 "cannot replace")):
            with self.assertRaisesRegex(kustomize.KustomizeError, said):
                self.render(kustomization, one=one, other=other,
                            double=one.replace("x: 1", "y: 1"))

    def test_merge(self):
        base = {"a": {"b": 1, "c": 2}, "args": [1, 2],
                "env": [{"name": "x", "value": 1}, {"name": "y"}]}
        patch = {"a": {"b": None, "d": 3}, "args": [3],
                 "env": [{"name": "x", "value": 2}, {"name": "y", "$patch": "delete"},
                         {"name": "z"}]}
        self.assertEqual(kustomize.merge(base, patch),
                         {"a": {"c": 2, "d": 3}, "args": [3],
                          "env": [{"name": "x", "value": 2}, {"name": "z"}]})


class AgreementTest(k8s_case.K8sCase):

    @k8s_case.for_each_folder
    def test_selectors_find_their_pods(self, rendered):
        for workload in rendered.workloads():
            labels = workload["spec"]["selector"]["matchLabels"]
            self.assertIs(rendered.workload_with(labels), workload)
            for spread in kustomize.pod_spec(workload).get("topologySpreadConstraints", []):
                self.assertIs(
                    rendered.workload_with(spread["labelSelector"]["matchLabels"]), workload)
        for service in rendered.of_kind("Service"):
            rendered.workload_with(service["spec"]["selector"])
        policies = rendered.of_kind("NetworkPolicy")
        for policy in policies:
            rendered.workload_with(policy["spec"]["podSelector"]["matchLabels"])
            for rule in policy["spec"]["ingress"]:
                for peer in rule["from"]:
                    labels = peer.get("podSelector", {}).get("matchLabels")
                    if labels:
                        rendered.workload_with(labels)
        # Every workload has a NetworkPolicy.
        self.assertEqual(len(policies), len(rendered.workloads()))

    @k8s_case.for_each_folder
    def test_ports_are_those_of_the_containers(self, rendered):
        for service in rendered.of_kind("Service"):
            workload = rendered.workload_with(service["spec"]["selector"])
            named = k8s_case.ports_of(workload)
            named.pop(PROBES, None)  # only the kubelet uses this port
            self.assertEqual({port["targetPort"]: port["port"]
                              for port in service["spec"]["ports"]}, named)
            policy = next(one for one in rendered.of_kind("NetworkPolicy")
                          if k8s_case.matches(one["spec"]["podSelector"]["matchLabels"],
                                              service["spec"]["selector"]))
            self.assertEqual({port["port"] for rule in policy["spec"]["ingress"]
                              for port in rule["ports"]}, set(named))
        for workload in rendered.workloads():
            ports = k8s_case.ports_of(workload)
            probes = {kind: probe for kind, probe in k8s_case.container_of(workload).items()
                      if kind.endswith("Probe")}
            if k8s_case.is_tidepool(workload):
                # Probes use plain text even if the other ports use TLS.
                self.assertLessEqual({"livenessProbe", "readinessProbe"}, set(probes))
                for kind, probe in probes.items():
                    wanted = "readiness" if kind == "readinessProbe" else "liveness"
                    self.assertEqual(probe["grpc"], {"port": ports[PROBES], "service": wanted})
                continue
            for probe in probes.values():
                for how in ("httpGet", "grpc", "tcpSocket"):
                    if how in probe:
                        self.assertIn(probe[how]["port"], {*ports, *ports.values()})

    @k8s_case.for_each_folder
    def test_configs_name_existing_ports_and_services(self, rendered):
        front, worker = self.halves(rendered)
        front_config, worker_config = rendered.config(front), rendered.config(worker)
        ports, worker_ports = k8s_case.ports_of(front), k8s_case.ports_of(worker)
        self.assertEqual({"grpc": port_of(front_config["listen"]),
                          "http": port_of(front_config["http"]),
                          PROBES: port_of(front_config["probe-listen"])}, ports)
        self.assertEqual({"grpc": port_of(worker_config["listen"]),
                          PROBES: port_of(worker_config["probe-listen"])}, worker_ports)
        for config in (front_config, worker_config):  # the kubelet and clients call from outside
            for key in ("listen", "probe-listen"):
                self.assertTrue(config[key].startswith("0.0.0.0:"))
        annotations = front["spec"]["template"]["metadata"]["annotations"]
        self.assertEqual(int(annotations["prometheus.io/port"]), ports["http"])
        headless = rendered.get("Service", worker["spec"]["serviceName"])
        self.assertEqual(headless["spec"]["clusterIP"], "None")
        self.assertIs(rendered.workload_with(headless["spec"]["selector"]), worker)
        # The front's configuration does not list workers, so it is right for any number of
        # replicas.
        self.assertNotIn("worker", front_config)
        self.assertEqual(front_config["workers"],
                         f"dns:///{headless['metadata']['name']}:{worker_ports['grpc']}")
        # The front can resolve the names of workers that still load their model.
        self.assertIs(headless["spec"]["publishNotReadyAddresses"], True)
        if front_config["store"].startswith("redis://"):
            name, _, store_port = front_config["store"].removeprefix("redis://").partition(":")
            service = rendered.get("Service", name)
            self.assertEqual([one["port"] for one in service["spec"]["ports"]],
                             [int(store_port)])
            config, _ = rendered.mounted_config(rendered.get("StatefulSet", name))
            settings = dict(line.split(maxsplit=1) for line in config.splitlines()
                            if line and not line.startswith("#"))
            self.assertEqual((settings["appendonly"], settings["appendfsync"],
                              settings["maxmemory-policy"]), ("yes", "always", "noeviction"))
        else:  # SQLite has one writer
            self.assertEqual((front["spec"]["replicas"], front["spec"]["strategy"]["type"]),
                             (1, "Recreate"))

    @k8s_case.for_each_folder
    def test_the_store_survives_the_loss_of_power(self, rendered):
        self.assertEqual(rendered.config(self.halves(rendered)[0])["durability"], "power")

    def halves(self, rendered):
        """The front and the worker."""
        found = {k8s_case.container_of(one)["args"][0]: one for one in rendered.workloads()
                 if k8s_case.is_tidepool(one)}
        self.assertEqual(set(found), {"front", "worker"})
        return found["front"], found["worker"]

    @k8s_case.for_each_folder
    def test_volumes_are_there(self, rendered):
        for workload in rendered.workloads():
            pod = kustomize.pod_spec(workload)
            names = [volume["name"] for volume in pod["volumes"]]
            names += [claim["metadata"]["name"]
                      for claim in workload["spec"].get("volumeClaimTemplates", [])]
            mounts = k8s_case.container_of(workload)["volumeMounts"]
            self.assertEqual(sorted(mount["name"] for mount in mounts), sorted(names))
            for volume in pod["volumes"]:
                if "configMap" in volume:
                    rendered.get("ConfigMap", volume["configMap"]["name"])
                elif "persistentVolumeClaim" in volume:
                    rendered.get("PersistentVolumeClaim",
                                 volume["persistentVolumeClaim"]["claimName"])
                elif "secret" in volume:
                    self.assertIs(volume["secret"]["optional"], True)  # the operator creates it
                else:
                    self.assertIn("emptyDir", volume)

    @k8s_case.for_each_folder
    def test_paths_lie_on_volumes(self, rendered):
        front, worker = self.halves(rendered)
        wanted = [(worker, "model", True), (worker, "cache-dir", False)]
        if not rendered.config(front)["store"].startswith("redis://"):
            wanted.append((front, "store", False))
        for workload, key, read_only in wanted:
            path = pathlib.PurePath(rendered.config(workload)[key])
            mounts = [mount for mount in k8s_case.container_of(workload)["volumeMounts"]
                      if path.is_relative_to(mount["mountPath"])]
            self.assertEqual(len(mounts), 1, key)
            self.assertEqual(mounts[0].get("readOnly", False), read_only, key)

    @k8s_case.for_each_folder
    def test_there_is_time_to_drain(self, rendered):
        for workload in self.halves(rendered):
            hook = k8s_case.container_of(workload).get("lifecycle", {}).get("preStop")
            pause = int(hook["exec"]["command"][1]) if hook else 0
            grace = kustomize.pod_spec(workload)["terminationGracePeriodSeconds"]
            drain = seconds(rendered.config(workload)["drain-timeout"])
            self.assertGreaterEqual(grace, pause + drain + 10)

    def test_images_are_of_this_version(self):
        version = k8s_case.run_tidepool("--version").split()[1]
        images = {k8s_case.container_of(workload)["image"]
                  for rendered in self.all for workload in self.halves(rendered)}
        self.assertEqual(images, {f"tidepool:{version}"})


class RestrictedTest(k8s_case.K8sCase):
    """kubernetes.io/docs/concepts/security/pod-security-standards/, "restricted"; and more."""

    def pods(self):
        (pod,) = kustomize.read_documents(COPY_POD)
        yield "model_copy.yaml", pod["spec"]
        for rendered in self.all:
            for workload in rendered.workloads():
                name = f"{rendered.name} {workload['metadata']['name']}"
                yield name, kustomize.pod_spec(workload)

    def test_pods_are_restricted(self):
        for name, pod in self.pods():
            with self.subTest(pod=name):
                self.assertEqual({key for key in pod if key.startswith("host")}, set())
                self.assertIs(pod["automountServiceAccountToken"], False)
                self.assertIs(pod["enableServiceLinks"], False)
                context = pod["securityContext"]
                self.assertIs(context["runAsNonRoot"], True)
                self.assertGreater(context["runAsUser"], 0)
                self.assertGreater(context["runAsGroup"], 0)
                self.assertEqual(context["seccompProfile"], {"type": "RuntimeDefault"})
                self.assertEqual(set().union(*map(set, pod["volumes"])) - {"name"}
                                 - {"configMap", "emptyDir", "persistentVolumeClaim", "secret"},
                                 set())
                for container in pod["containers"] + pod.get("initContainers", []):
                    self.assertEqual(container["securityContext"],
                                     {"allowPrivilegeEscalation": False,
                                      "readOnlyRootFilesystem": True,
                                      "capabilities": {"drop": ["ALL"]}})
                    self.assertEqual(set(container["resources"]["requests"]), {"cpu", "memory"})
                    self.assertIn("memory", container["resources"]["limits"])

    @k8s_case.for_each_folder
    def test_the_cluster_holds_them_to_it(self, rendered):
        (namespace,) = rendered.of_kind("Namespace")
        self.assertEqual(namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"],
                         "restricted")
        for resource in rendered.resources.values():
            if resource is not namespace:
                self.assertEqual(resource["metadata"]["namespace"],
                                 namespace["metadata"]["name"])


class FlagsTest(k8s_case.K8sCase):

    @k8s_case.for_each_folder
    def test_flags_are_those_of_the_binary(self, rendered):
        for workload in rendered.workloads():
            if not k8s_case.is_tidepool(workload):
                continue
            command, *words = k8s_case.container_of(workload)["args"]
            known = set(re.findall(r"--([a-z][a-z-]*)", k8s_case.run_tidepool(command, "--help")))
            used = [re.fullmatch(r"--([a-z-]+)(=.+)?", word)[1] for word in words]
            self.assertLessEqual({*used, *rendered.config(workload)}, known)

    def test_overlays_keep_the_arguments_of_the_base(self):
        base = next(one for one in self.all if one.name == "base")
        for rendered in self.all:
            for workload in base.workloads():
                arguments = k8s_case.container_of(workload)["args"]
                ours = k8s_case.container_of(rendered.get(*kustomize.identity(workload)))["args"]
                self.assertEqual(ours[:len(arguments)], arguments, rendered.name)


if __name__ == "__main__":
    unittest.main(verbosity=2)
