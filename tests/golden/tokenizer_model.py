"""A whole model with a SentencePiece vocabulary, for make_tokenizers.py: tiny/mixtral_q4_0 with
another tokenizer.

Ids 0 to 255 are the bytes, then come 29 pieces, <unk>, <s> and </s>. The weights stay the same, so
the model still generates the same ids.
"""

import json
import pathlib

import gguf
import sentencepiece
from sentencepiece import sentencepiece_model_pb2

import golden_common as common

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE / "tiny" / "mixtral_q4_0.gguf"
NAME = "mixtral_spm_q4_0"
PIECES = ("\u2581", "e", "t", "a", "o", "i", "n", "s", "r", "h", "d", "\u2581t", "he", "\u2581the", "in", "\u2581a", "er", "\u2581s", "an",
          "\u2581an", "\u2581and", "re", "on", "ti", "de", "tide", "\u2581ti", "\u2581tide", "\u2581i")
TEXTS = ("the tide and the rope", " In  the harbour:\ncaf\u00e9, 41 boats \U0001f6a3", "tidetide")


def _proto():
    proto = sentencepiece_model_pb2.ModelProto()
    kind = proto.SentencePiece
    rows = [(f"<0x{b:02X}>", 0.0, kind.BYTE) for b in range(256)]
    rows += [(piece, -float(i), kind.NORMAL) for i, piece in enumerate(PIECES)]
    rows += [("<unk>", 0.0, kind.UNKNOWN), ("<s>", 0.0, kind.CONTROL), ("</s>", 0.0, kind.CONTROL)]
    for piece, score, type_ in rows:
        proto.pieces.add(piece=piece, score=score, type=type_)
    proto.trainer_spec.model_type = proto.trainer_spec.BPE
    proto.trainer_spec.vocab_size = len(rows)
    proto.trainer_spec.byte_fallback = True
    proto.normalizer_spec.name = "identity"
    proto.normalizer_spec.add_dummy_prefix = True
    proto.normalizer_spec.remove_extra_whitespaces = False
    return proto


def _write(path, proto):
    reader = gguf.GGUFReader(SOURCE)
    writer = gguf.GGUFWriter(path, "llama")
    for name, field in reader.fields.items():
        if not name.startswith(("GGUF.", "tokenizer.", "general.architecture")):
            kind = field.types[0]
            writer.add_key_value(name, field.contents(), kind,
                                 field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None)
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([p.piece for p in proto.pieces])
    writer.add_token_scores([p.score for p in proto.pieces])
    writer.add_token_types([p.type for p in proto.pieces])
    size = len(proto.pieces)
    writer.add_unk_token_id(size - 3)
    writer.add_bos_token_id(size - 2)
    writer.add_eos_token_id(size - 1)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _text(proto, ids):
    """Returns the text of a stream of these ids. Python's codec decides how invalid UTF-8 is
    replaced."""
    kind = proto.SentencePiece
    data = b"".join(bytes([i]) if proto.pieces[i].type == kind.BYTE else
                    proto.pieces[i].piece.replace("\u2581", " ").encode() for i in ids)
    return data.decode("utf-8", "replace")


def write(folder):
    """Writes the model and, beside it, ids and texts by sentencepiece and the greedy ids of the
    source."""
    proto = _proto()
    _write(folder / f"{NAME}.gguf", proto)
    model = sentencepiece.SentencePieceProcessor(model_proto=proto.SerializeToString())
    golden = json.loads(SOURCE.with_suffix(".json").read_text(encoding="utf-8"))
    runs = [{"ids": prompt["ids"], "greedy": prompt["greedy"]["ids"],
             "text": _text(proto, prompt["greedy"]["ids"])} for prompt in golden["prompts"]]
    common.save_json(folder / f"{NAME}.json", {
        "model": f"{NAME}.gguf", "bos_id": len(proto.pieces) - 2,
        "texts": [{"text": text, "ids": model.encode(text)} for text in TEXTS], "runs": runs})
