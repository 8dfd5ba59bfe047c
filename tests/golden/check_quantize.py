#!/usr/bin/env python3
"""Checks the files of `tidepool quantize` with the gguf package and with llama.cpp.

    python3 check_quantize.py TIDEPOOL_BINARY MAKE_SYNTHETIC_BINARY

It converts a small synthetic float32 model to each weight type and checks each file:
- the gguf package reads bit for bit the values that tidepool reads (tidepool writes them out as F32);
- llama.cpp loads the file, and its logits are near those of `tidepool logits`;
- no tensor differs more from the original than the result of llama.cpp's own quantiser.
"""

import ctypes
import pathlib
import subprocess
import tempfile

import gguf
import llama_cpp
import numpy as np

import golden_common as common

# Largest root mean square difference of logits, whose spread is about 2. llama.cpp rounds activations to
# a type that depends on the weights (8 bits, F16 or BF16); --exact does not round them.
LIMITS = {"F32": 1e-4, "F16": 0.01, "BF16": 0.1, "Q8_0": 0.1, "Q6_K": 0.1, "Q5_K": 0.1, "Q4_K": 0.1,
          "Q5_1": 0.1, "Q5_0": 0.1, "Q4_1": 0.1, "Q4_0": 0.1, "IQ4_NL": 0.1, "MXFP4": 0.1}
WORST_RATIO = 1.02
TOKENS = [84, 257, 256, 105, 100, 101, 32, 269, 70, 71, 72, 33, 300, 12, 90, 45]


def run(*words):
    subprocess.run([str(word) for word in words], check=True, capture_output=True)


def llamacpp_logits(path):
    llama = llama_cpp.Llama(str(path), n_ctx=256, logits_all=True, n_threads=1, verbose=False,
                            type_k=int(gguf.GGMLQuantizationType.F32),
                            type_v=int(gguf.GGMLQuantizationType.F32))
    llama.eval(TOKENS)
    return np.array(llama.scores[:len(TOKENS)])


def llamacpp_quantised(ggml, values, kind):
    """Quantises the values with llama.cpp and dequantises them again."""
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    rows, columns = values.size // values.shape[-1], values.shape[-1]
    blocks = np.zeros((rows, columns // elements * size), np.uint8)
    values = np.ascontiguousarray(values)
    ggml.ggml_quantize_chunk(int(kind), values.ctypes.data, blocks.ctypes.data, 0, rows, columns, None)
    return gguf.quants.dequantize(blocks, kind).reshape(values.shape)


def load_ggml():
    ggml = ctypes.CDLL(str(pathlib.Path(llama_cpp.__file__).parent / "lib" / "libggml-base.so"))
    ggml.ggml_quantize_chunk.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64,
                                         ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p]
    return ggml


def rms(values):
    return float(np.sqrt(np.mean(np.asarray(values, np.float64) ** 2)))


def check(name, original, folder, tidepool, ggml):
    path, plain, npy = folder / f"{name}.gguf", folder / f"{name}.f32.gguf", folder / "logits.npy"
    run(tidepool, "quantize", original, path, "--type", name)
    run(tidepool, "quantize", path, plain, "--type", "F32")
    _, before = common.read_gguf(original)
    _, theirs = common.read_gguf(path)
    _, ours = common.read_gguf(plain)
    equal = all(np.array_equal(ours[tensor], theirs[tensor]) for tensor in before)
    worst = 0.0
    for tensor in gguf.GGUFReader(path).tensors:
        if tensor.tensor_type in (gguf.GGMLQuantizationType.F32, gguf.GGMLQuantizationType.F16,
                                  gguf.GGMLQuantizationType.BF16):
            continue
        values = before[tensor.name]
        reference = rms(llamacpp_quantised(ggml, values, tensor.tensor_type) - values)
        worst = max(worst, rms(theirs[tensor.name] - values) / reference)
    run(tidepool, "logits", "--model", path, "--tokens", ",".join(map(str, TOKENS)), "--all", "--exact",
        "--out", npy)
    apart = rms(np.load(npy) - llamacpp_logits(path))
    good = equal and worst <= WORST_RATIO and apart <= LIMITS[name]
    print(f"{name:7} values {'equal' if equal else 'DIFFER'}, error {worst:.4f} of llama.cpp's, logits "
          f"{apart:.2e} apart, limit {LIMITS[name]:g}  {'ok' if good else 'FAR'}")
    return good


def main():
    parser = common.make_parser(__doc__)
    parser.add_argument("tidepool")
    parser.add_argument("make_synthetic")
    args = parser.parse_args()
    ggml, good = load_ggml(), True
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        original = folder / "original.gguf"
        run(args.make_synthetic, "--dense", "tiny", "--type", "F32", "--out", original)
        for name in LIMITS:
            good &= check(name, original, folder, args.tidepool, ggml)
    raise SystemExit(0 if good else 1)


if __name__ == "__main__":
    main()
