#!/usr/bin/env python3
"""Reads the committed GGUF files with llama.cpp, and compares its logits with the golden ones.

    python3 check_with_llamacpp.py [--tiny tiny] [--smollm2 MODEL.gguf]

A second reader shows that the export (names, keys, row order) is correct. llama.cpp rounds
activations if weights are not float32, so each weight type has its own limit. With --smollm2, the
Q4_1 file is first written as float32 to a temporary file, so that only the reference itself is
compared.
"""

import json
import pathlib
import tempfile

import gguf
import llama_cpp
import numpy as np

import golden_common as common

HERE = pathlib.Path(__file__).resolve().parent
# Largest mean |difference| of llama.cpp's logits that is accepted, by the type of the weights.
LIMITS = {"f32": 1e-4, "f16": 0.05, "bf16": 0.2, "q8_0": 0.3, "q4_0": 0.5, "q4_1": 0.5,
          "quants": 0.5}


def llamacpp_logits(path, prompts):
    """Returns float32 [n, vocab] for each list of ids, computed with a float32 KV cache on one
    thread."""
    llama = llama_cpp.Llama(str(path), n_ctx=512, logits_all=True, n_threads=1, verbose=False,
                            type_k=int(gguf.GGMLQuantizationType.F32),
                            type_v=int(gguf.GGMLQuantizationType.F32))
    for prompt in prompts:
        if prompt["text"] is not None:
            ids = llama.tokenize(prompt["text"].encode(), add_bos=False, special=True)
            if ids != prompt["ids"]:
                raise SystemExit(f"{path}: llama.cpp has other ids for {prompt['name']!r}")
        llama.reset()
        llama.eval(prompt["ids"])
        yield np.array(llama.scores[: len(prompt["ids"])])


def report(label, difference, limit):
    """Prints one line and says whether the mean is within the limit."""
    mean, largest = float(difference.mean()), float(difference.max())
    good = mean <= limit
    verdict = "ok" if good else "FAR"
    print(f"{label:32} mean {mean:.2e}  max {largest:.2e}  limit {limit:g}  {verdict}")
    return good


def check_tiny(folder):
    good = True
    for path in sorted(folder.glob("*.json")):
        golden = json.loads(path.read_text(encoding="utf-8"))
        prompts = golden["prompts"]
        for prompt, ours in zip(prompts, llamacpp_logits(folder / golden["model"], prompts)):
            difference = np.abs(ours - np.load(folder / prompt["logits"]))
            good &= report(f"{path.stem}/{prompt['name']}", difference, LIMITS[golden["weights"]])
    return good


def write_as_f32(source, target):
    """Copies metadata and dequantised tensors of a GGUF file."""
    reader = gguf.GGUFReader(source)
    fields, tensors = common.read_gguf(source)
    writer = gguf.GGUFWriter(target, fields["general.architecture"])
    skip = ("general.architecture", "general.file_type", "general.quantization_version")
    for name, field in reader.fields.items():
        if not name.startswith("GGUF.") and name not in skip:
            kind = field.types[0]
            inner = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(name, field.contents(), kind, inner)
    for name, values in tensors.items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def check_smollm2(source, folder):
    prompts = json.loads((folder / "golden.json").read_text(encoding="utf-8"))["prompts"]
    good = True
    with tempfile.TemporaryDirectory() as scratch:
        target = pathlib.Path(scratch) / "f32.gguf"
        write_as_f32(source, target)
        for prompt, ours in zip(prompts, llamacpp_logits(target, prompts)):
            difference = np.abs(ours[-1] - np.load(folder / prompt["last_logits"]))
            good &= report(f"smollm2/{prompt['name']}", difference, LIMITS["f32"])
    return good


def main():
    parser = common.make_parser(__doc__)
    parser.add_argument("--tiny", default=HERE / "tiny", type=pathlib.Path)
    parser.add_argument("--smollm2", type=pathlib.Path, metavar="MODEL.gguf")
    args = parser.parse_args()
    good = check_tiny(args.tiny)
    if args.smollm2:
        good &= check_smollm2(args.smollm2, HERE / "smollm2")
    raise SystemExit(0 if good else 1)


if __name__ == "__main__":
    main()
