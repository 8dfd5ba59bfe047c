"""The committed routing of the demo MoE: the output of calibrate.py and the input of make.py.

A NumPy .npz archive (no pickles) for L layers, E experts of W neurons and S shared neurons:
  version        int64, 2
  model_sha256   SHA-256 of its GGUF file, 64 hexadecimal digits
  neurons        uint16 [L, S + E * W]: a permutation of the dense FFN's neurons, first those of the
                 shared expert, then expert by expert
  shape          int64 [4]: S, E, W, and the number of experts that a token uses
  router         int8 [L, E, hidden]; router * router_scale are the router's rows, which are applied to
                 the FFN's normed input
  router_scale   float32 [L, E]
  neuron_scale   float16 [L, S + E * W], in the order of `neurons`: scale of a neuron's output, which
                 makes the sum of the used neurons approximate the sum of all
"""

import dataclasses
import zipfile

import numpy as np

VERSION = 2


@dataclasses.dataclass
class Routing:
    model_sha256: str
    shared: int
    experts: int
    width: int
    top_k: int
    neurons: np.ndarray
    router: np.ndarray  # float32 here
    neuron_scale: np.ndarray


def save(path, routing):
    largest = np.abs(routing.router).max(axis=2)
    scale = np.maximum(largest / 127, 1e-12).astype(np.float32)
    np.savez_compressed(
        path, version=np.int64(VERSION), model_sha256=np.array(routing.model_sha256),
        neurons=routing.neurons.astype(np.uint16),
        shape=np.array([routing.shared, routing.experts, routing.width, routing.top_k]),
        router=np.rint(routing.router / scale[:, :, None]).astype(np.int8), router_scale=scale,
        neuron_scale=routing.neuron_scale.astype(np.float16))


def load(path):
    """The Routing of a file. Raises a ValueError with one line if the file is invalid."""
    try:
        with np.load(path, allow_pickle=False) as data:
            parts = {name: data[name] for name in data.files}
        if int(parts["version"]) != VERSION:
            raise ValueError(f"has version {int(parts['version'])}, expected {VERSION}")
        shared, experts, width, top_k = (int(n) for n in parts["shape"])
        routing = Routing(
            str(parts["model_sha256"]), shared, experts, width, top_k,
            parts["neurons"].astype(np.int64),
            parts["router"].astype(np.float32) * parts["router_scale"][:, :, None],
            parts["neuron_scale"].astype(np.float32))
    except FileNotFoundError:
        raise ValueError(f"{path}: no such file; create it with tools/demo_moe/calibrate.py") from None
    except (OSError, KeyError, IndexError, TypeError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path}: not routing data of the demo MoE ({error})") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    check(path, routing)
    return routing


def check(path, routing):
    layers, neurons = routing.neurons.shape
    if not (min(routing.shared, routing.experts, routing.width) > 0
            and neurons == routing.shared + routing.experts * routing.width
            and 1 <= routing.top_k <= routing.experts):
        raise ValueError(f"{path}: {routing.shared} shared neurons and {routing.experts} x "
                         f"{routing.width} routed ones do not add up to the {neurons} of a layer")
    if not (np.sort(routing.neurons, axis=1) == np.arange(neurons)).all():
        raise ValueError(f"{path}: the neurons of a layer are not a permutation")
    if (routing.router.shape[:2] != (layers, routing.experts)
            or routing.neuron_scale.shape != (layers, neurons)):
        raise ValueError(f"{path}: the shapes of routers or scales do not fit {layers} layers, "
                         f"{routing.experts} experts and {neurons} neurons")
    if not (np.isfinite(routing.router).all() and np.isfinite(routing.neuron_scale).all()):
        raise ValueError(f"{path}: a router or scale is not finite")
