"""A small implementation of `kubectl kustomize`, with the features that k8s/ uses.

It supports namespace, resources (files and folders), patches (strategic merge), ConfigMaps
generated from files (behavior create or replace, names with the hash of their content) and images.
Any other field is an error. The fields are defined in
https://kubectl.docs.kubernetes.io/references/kustomize/kustomization/. manifests_test.py compares
the result with kubectl's where it is installed.
"""

import copy
import hashlib
import json
import pathlib

import yaml

KNOWN = {"apiVersion", "kind", "namespace", "resources", "patches", "configMapGenerator", "images"}
CLUSTER_KINDS = {"Namespace"}
# Lists of objects that a patch merges by a field; it replaces all other lists. The fields are the
# patchMergeKey values of the Kubernetes API, k8s.io/api/core/v1/types.go.
MERGE_KEYS = {"containers": "name", "initContainers": "name", "volumes": "name", "env": "name",
              "volumeMounts": "mountPath", "imagePullSecrets": "name"}
# Services and containers merge this list by different fields, and no patch here changes it.
REFUSED_LISTS = {"ports"}


class KustomizeError(Exception):
    """A kustomization that cannot be rendered."""


class UniqueKeys(yaml.SafeLoader):
    """YAML that refuses duplicate keys in a map, one of which would be lost."""

    def construct_mapping(self, node, deep=False):
        keys = [key.value for key, _ in node.value]
        twice = {key for key in keys if keys.count(key) > 1}
        if twice:
            raise KustomizeError(f"{node.start_mark}: {', '.join(sorted(twice))} is there twice")
        return super().construct_mapping(node, deep)


def parse_documents(text):
    return [document for document in yaml.load_all(text, UniqueKeys) if document]


def read_documents(path):
    return parse_documents(path.read_text())


def identity(resource):
    return resource["kind"], resource["metadata"]["name"]


def render(folder):
    """{(kind, name): resource}; the names of generated ConfigMaps end in their hashes."""
    resources, generated = _build(pathlib.Path(folder))
    renamed = {}
    for name in generated:
        resource = resources[("ConfigMap", name)]
        renamed[name] = f"{name}-{content_hash(resource)}"
    for resource in resources.values():
        if identity(resource)[0] == "ConfigMap" and identity(resource)[1] in renamed:
            resource["metadata"]["name"] = renamed[identity(resource)[1]]
        _rename_config_maps(resource, renamed)
    return {identity(resource): resource for resource in resources.values()}


def _build(folder):
    """Returns the resources by identity, with names before hashing, and the names of generated
    ConfigMaps."""
    path = folder / "kustomization.yaml"
    if not path.is_file():
        raise KustomizeError(f"{folder} has no kustomization.yaml")
    settings = read_documents(path)[0]
    unknown = set(settings) - KNOWN
    if unknown:
        raise KustomizeError(f"{path}: not known here: {', '.join(sorted(unknown))}")
    resources, generated = {}, []
    for name in settings.get("resources", []):
        target = folder / name
        if target.is_dir():
            below, more = _build(target)
            found, generated = list(below.values()), generated + more
        elif target.is_file():
            found = read_documents(target)
        else:
            raise KustomizeError(f"{path}: there is no {name}")
        for resource in found:
            if identity(resource) in resources:
                raise KustomizeError(f"{path}: {identity(resource)} is there twice")
            resources[identity(resource)] = resource
    for one in settings.get("configMapGenerator", []):
        _generate(folder, one, resources, generated)
    for one in settings.get("patches", []):
        text = one["patch"] if "patch" in one else (folder / one["path"]).read_text()
        for patch in parse_documents(text):
            _apply(patch, resources, path)
    for resource in resources.values():
        _set_images(resource, settings.get("images", []))
        if "namespace" in settings and resource["kind"] not in CLUSTER_KINDS:
            resource["metadata"]["namespace"] = settings["namespace"]
    return resources, generated


def _generate(folder, settings, resources, generated):
    name, behavior = settings["name"], settings.get("behavior", "create")
    data = {pathlib.Path(file).name: (folder / file).read_text() for file in settings["files"]}
    there = name in generated
    if behavior not in ("create", "replace") or there != (behavior == "replace"):
        raise KustomizeError(f"{folder}: cannot {behavior} the ConfigMap {name}")
    resources[("ConfigMap", name)] = {"apiVersion": "v1", "kind": "ConfigMap",
                                      "metadata": {"name": name}, "data": data}
    if not there:
        generated.append(name)


def content_hash(config_map):
    """The hash that ends a ConfigMap's name, computed as in sigs.k8s.io/kustomize/api/hasher,
    which leaves out the name."""
    encoded = json.dumps({"data": config_map["data"], "kind": "ConfigMap", "name": ""},
                         sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    # Go's JSON encoder escapes these characters.
    for letter in "<>&\u2028\u2029":
        encoded = encoded.replace(letter, f"\\u{ord(letter):04x}")
    digest = hashlib.sha256(encoded.encode()).hexdigest()[:10]
    return digest.translate(str.maketrans("013ae", "ghkmt"))


def _apply(patch, resources, path):
    key = identity(patch)
    if key not in resources:
        raise KustomizeError(f"{path}: a patch for {key}, which is not there")
    if patch.get("$patch") == "delete":
        del resources[key]
    else:
        resources[key] = merge(resources[key], patch)


def merge(base, patch, name=""):
    """Returns a strategic merge: maps are merged by key, and the lists of MERGE_KEYS by their
    field. null removes a member."""
    if isinstance(base, dict) and isinstance(patch, dict):
        merged = copy.deepcopy(base)
        for key, value in patch.items():
            if value is None:
                merged.pop(key, None)
            elif key in merged:
                merged[key] = merge(merged[key], value, key)
            else:
                merged[key] = copy.deepcopy(value)
        return merged
    if isinstance(base, list) and name in REFUSED_LISTS:
        raise KustomizeError(f"a patch of {name} is not known here")
    if isinstance(base, list) and name in MERGE_KEYS:
        return _merge_lists(base, patch, MERGE_KEYS[name])
    return copy.deepcopy(patch)


def _merge_lists(base, patch, key):
    merged = {item[key]: item for item in base}
    for item in patch:
        if item.get("$patch") == "delete":
            if merged.pop(item[key], None) is None:
                raise KustomizeError(f"a patch deletes {item[key]}, which is not there")
        elif item[key] in merged:
            merged[item[key]] = merge(merged[item[key]], item)
        else:
            merged[item[key]] = copy.deepcopy(item)
    return list(merged.values())


def pod_spec(resource):
    """Returns the pod spec of a pod or of a resource that makes pods; None for others."""
    if resource["kind"] == "Pod":
        return resource["spec"]
    template = resource.get("spec", {}).get("template")
    return template["spec"] if template else None


def _set_images(resource, images):
    pod = pod_spec(resource)
    for container in pod["containers"] + pod.get("initContainers", []) if pod else []:
        name, _, tag = container["image"].rpartition(":")
        for image in images:
            if image["name"] == name:
                container["image"] = f"{image.get('newName', name)}:{image.get('newTag', tag)}"


def _rename_config_maps(resource, renamed):
    pod = pod_spec(resource)
    for volume in pod.get("volumes", []) if pod else []:
        if "configMap" in volume:
            name = volume["configMap"]["name"]
            volume["configMap"]["name"] = renamed.get(name, name)
