"""SentencePiece vocabularies for make_tokenizers.py: trained, written as GGUF, and run."""

import io

import gguf
import sentencepiece
from sentencepiece import sentencepiece_model_pb2

import tokenizer_llamacpp

COMMON = {
    "model_type": "bpe", "vocab_size": 2000, "character_coverage": 0.998, "num_threads": 1,
    "normalization_rule_name": "identity", "max_sentence_length": 1 << 20, "minloglevel": 2,
    "split_by_unicode_script": False, "unk_id": 0, "bos_id": 1, "eos_id": 2, "pad_id": -1,
}
# As the models that the names hint at were trained; the last two for the rarer options.
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
    """Line -> ids, or None where we follow llama.cpp instead: a "\u2581" in the text itself is part of no
    user-defined symbol."""
    def encode(line):
        marked = name == "spm_gemma" and ("\u2581\u2581" in line or "\u2581 " in line or " \u2581" in line)
        return None if marked else model.encode(line)
    return encode


def sets(folder):
    """(name, vocabulary file, None, line -> ids or None) of every kind."""
    for name in KINDS:
        model = sentencepiece.SentencePieceProcessor(model_file=str(folder / f"{name}.model"))
        yield name, f"{name}.gguf", None, _encoder(name, model)
    # With special tokens parsed SentencePiece has nothing to say.
    yield "spm_llama_parse", "spm_llama.gguf", None, tokenizer_llamacpp.encoder(
        folder / "spm_llama.gguf", None, special=True)
    yield "spm_gemma_parse", "spm_gemma.gguf", None, tokenizer_llamacpp.encoder(
        folder / "spm_gemma.gguf", None, special=True)
