"""SentencePiece vocabularies for make_tokenizers.py: trained, written as GGUF, and run."""

import io

import gguf
import sentencepiece
from sentencepiece import sentencepiece_model_pb2

import tokenizer_llamacpp
from tokenizer_lines import Set

COMMON = {
    "model_type": "bpe", "vocab_size": 2000, "character_coverage": 0.998, "num_threads": 1,
    "normalization_rule_name": "identity", "max_sentence_length": 1 << 20, "minloglevel": 2,
    "split_by_unicode_script": False, "unk_id": 0, "bos_id": 1, "eos_id": 2, "pad_id": -1,
}
# Options like those of the models in the names; the last two test rarer options.
KINDS = {
    "spm_llama": {"byte_fallback": True, "add_dummy_prefix": True, "split_digits": True,
                  "remove_extra_whitespaces": False, "allow_whitespace_only_pieces": True},
    "spm_gemma": {"byte_fallback": True, "add_dummy_prefix": False, "split_digits": True,
                  "remove_extra_whitespaces": False, "unk_id": 3, "bos_id": 2, "eos_id": 1, "pad_id": 0,
                  "user_defined_symbols": ["\n", "\n\n", "\n\n\n", "\u2581\u2581", "\u2581\u2581\u2581",
                                           "<custom>", "<custom_tag>", "<start_of_turn>"]},
    "spm_phrases": {"byte_fallback": False, "add_dummy_prefix": True, "split_by_whitespace": False,
                    "remove_extra_whitespaces": True},
    "spm_unused": {"byte_fallback": True, "add_dummy_prefix": True, "remove_extra_whitespaces": False},
}
TYPES = {1: 1, 2: 2, 3: 3, 4: 4, 5: 5, 6: 6}  # sentencepiece's numbers are GGUF's


def _train_one(name, corpus):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus), model_writer=model, **(COMMON | KINDS[name]))
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(model.getvalue())
    if name == "spm_unused":  # every fifth piece comes apart again
        for piece in list(proto.pieces)[259::5]:
            if len(piece.piece) > 1:
                piece.type = sentencepiece_model_pb2.ModelProto.SentencePiece.UNUSED
    return proto


def _write_gguf(path, proto):
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    # Converters write the spaces of user-defined symbols as spaces.
    writer.add_token_list([p.piece.replace("\u2581", " ") if p.type == 4 else p.piece for p in proto.pieces])
    writer.add_token_scores([p.score for p in proto.pieces])
    writer.add_token_types([TYPES[p.type] for p in proto.pieces])
    writer.add_bos_token_id(proto.trainer_spec.bos_id)
    writer.add_eos_token_id(proto.trainer_spec.eos_id)
    writer.add_unk_token_id(proto.trainer_spec.unk_id)
    writer.add_add_space_prefix(proto.normalizer_spec.add_dummy_prefix)
    if proto.normalizer_spec.remove_extra_whitespaces:
        writer.add_remove_extra_whitespaces(True)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def train(folder, corpus):
    """Writes NAME.gguf and NAME.model of every kind."""
    for name in KINDS:
        proto = _train_one(name, corpus)
        (folder / f"{name}.model").write_bytes(proto.SerializeToString())
        _write_gguf(folder / f"{name}.gguf", proto)


def _encoder(name, model):
    """Line -> ids. None where we follow llama.cpp instead: a "\u2581" in the text is not part of a
    user-defined symbol."""
    def encode(line):
        marked = name == "spm_gemma" and ("\u2581\u2581" in line or "\u2581 " in line or " \u2581" in line)
        return None if marked else model.encode(line)
    return encode


def _broken_encoder(encode, model):
    """Bytes -> ids, or None. The library reads each invalid byte as U+FFFD, which the vocabularies
    encode as three byte tokens. They are replaced with the one token of the byte."""
    byte_ids = [model.piece_to_id(f"<0x{byte:02X}>") for byte in range(256)]
    replacement = [byte_ids[byte] for byte in "\ufffd".encode()]
    has_bytes = model.unk_id() not in byte_ids

    def encode_broken(line):
        text = line.decode(errors="surrogateescape")
        broken = iter([byte_ids[ord(c) - 0xDC00] for c in text if "\udc80" <= c <= "\udcff"])
        ids = encode("".join("\ufffd" if "\udc80" <= c <= "\udcff" else c for c in text))
        if "\ufffd" in text or ids is None or not has_bytes:
            return None if "\ufffd" in text else ids
        restored, at = [], 0
        while at < len(ids):
            is_replacement = ids[at:at + 3] == replacement
            restored.append(next(broken) if is_replacement else ids[at])
            at += 3 if is_replacement else 1
        return restored
    return encode_broken


def sets(folder):
    """Returns the Set of every kind."""
    for name in KINDS:
        model = sentencepiece.SentencePieceProcessor(model_file=str(folder / f"{name}.model"))
        encode = _encoder(name, model)
        yield Set(name, f"{name}.gguf", None, encode, _broken_encoder(encode, model))
    # SentencePiece defines no parsing of special tokens.
    for name in ("spm_llama", "spm_gemma"):
        encode = tokenizer_llamacpp.encoder(folder / f"{name}.gguf", None, special=True)
        yield Set(f"{name}_parse", f"{name}.gguf", None, encode)
