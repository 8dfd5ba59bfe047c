#!/usr/bin/env python3
"""Makes tests/golden/hf_gguf.json: the metadata and tensors that llama.cpp's converter writes for
the directories in hf/.

    python3 make_hf_gguf.py [--only NAME ...] LLAMA_CPP_FOLDER

The folder is a source tree of llama.cpp (the sdist of llama-cpp-python has one in vendor/llama.cpp).
The file has the metadata keys of each architecture, and the shape and a CRC-32 of the float32 values
of each tensor. README.md describes it. The vocabulary is left out: the directories have none.
"""

import json
import pathlib
import sys
import tempfile
import zlib

import numpy as np

# The converter needs the gguf package of its own source tree.
sys.path[1:1] = [str(pathlib.Path(sys.argv[-1]).resolve() / part) for part in ("gguf-py", "")]

import golden_common as common
import hf_families

HERE = pathlib.Path(__file__).resolve().parent
# These keys are left out, because they depend on the converter's output type, or are the same for
# every model.
SKIPPED = ("general.", "tokenizer.", "GGUF.")
# Keys that the converter requires of published models and that transformers does not save.
NEEDED = {"hunyuan_v1_moe": {"moe_intermediate_size": [12] * 3, "moe_topk": [2] * 3,
                             "num_shared_expert": [1] * 3,
                             "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}}


def convert(source, path, mtp):
    import conversion
    import gguf
    settings = conversion.ModelBase.load_hparams(source, False) | NEEDED.get(source.name, {})
    kind = conversion.get_model_class(
        conversion.get_model_architecture(settings, conversion.ModelType.TEXT))
    kind.set_vocab = lambda self: None
    kind.no_mtp = not mtp
    kind.mtp_only = False
    # Gemma 3 cuts the embedding to the size of its vocabulary.
    kind._create_vocab_sentencepiece = lambda self: (range(59), None, None)
    model = kind(source, gguf.LlamaFileType.ALL_F32, path, eager=True, hparams=settings)
    model.write()


def describe(path):
    fields, tensors = common.read_gguf(path)
    return {
        "architecture": fields["general.architecture"],
        "keys": {key: value for key, value in sorted(fields.items())
                 if not key.startswith(SKIPPED)},
        "tensors": {name: [list(reversed(values.shape)), zlib.crc32(np.ascontiguousarray(values))]
                    for name, values in sorted(tensors.items())}}


def main():
    parser = common.make_parser(__doc__)
    parser.add_argument("--only", nargs="*", metavar="NAME", help="names of models; default: all")
    parser.add_argument("folder", type=pathlib.Path)
    args = parser.parse_args()
    models = json.loads((HERE / "hf_gguf.json").read_text()) if args.only else {}
    for spec in hf_families.FAMILIES:
        if not spec.converter or (args.only and spec.name not in args.only):
            continue
        with tempfile.TemporaryDirectory() as scratch:
            path = pathlib.Path(scratch) / "out.gguf"
            source = HERE / "hf" / spec.name
            # The converter reads a vocabulary of SentencePiece only if tokenizer.model exists. convert()
            # replaces the function that reads it, so an empty file is enough.
            folder = pathlib.Path(scratch) / spec.name
            folder.mkdir()
            for file in source.iterdir():
                (folder / file.name).symlink_to(file)
            (folder / "tokenizer.model").touch()
            convert(folder, path, spec.mtp)
            models[spec.name] = describe(path)
    (HERE / "hf_gguf.json").write_text(json.dumps(models, separators=(",", ":")).replace(
        '"tensors"', '\n"tensors"').replace('"keys"', '\n"keys"') + "\n")


if __name__ == "__main__":
    main()
