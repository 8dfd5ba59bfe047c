#include "engine/checkpoint/hf/sentencepiece.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/checkpoint/gguf_parser.h"
#include "engine/checkpoint/hf/vocabulary.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/utf8.h"

namespace tidepool::engine::hf {
namespace {

constexpr size_t kMaxPieces = size_t{1} << 24;

// The wire type of a protobuf field.
enum class Wire : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

struct Field {
  uint32_t number = 0;
  Wire wire = Wire::kVarint;
  uint64_t value = 0;  // an integer, or the bits of a float
  absl::string_view bytes;
};

// Reads the fields of one message, in order.
class MessageReader {
 public:
  explicit MessageReader(absl::string_view bytes) : rest_(bytes) {}

  bool done() const { return rest_.empty(); }

  // Returns false if the message is malformed.
  bool Next(Field* field) {
    uint64_t tag = 0;
    if (!ReadVarint(&tag) || tag >> 3 == 0 || tag >> 3 > kMaxNumber) return false;
    field->number = static_cast<uint32_t>(tag >> 3);
    field->wire = static_cast<Wire>(tag & 7);
    switch (field->wire) {
      case Wire::kVarint:
        return ReadVarint(&field->value);
      case Wire::kFixed64:
        return ReadFixed(sizeof(uint64_t), &field->value);
      case Wire::kFixed32:
        return ReadFixed(sizeof(uint32_t), &field->value);
      case Wire::kBytes: {
        uint64_t size = 0;
        if (!ReadVarint(&size) || size > rest_.size()) return false;
        field->bytes = rest_.substr(0, size);
        rest_.remove_prefix(size);
        return true;
      }
    }
    return false;
  }

 private:
  static constexpr uint64_t kMaxNumber = (1 << 29) - 1;

  bool ReadVarint(uint64_t* value) {
    *value = 0;
    for (int shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
      const auto byte = static_cast<uint8_t>(rest_[0]);
      rest_.remove_prefix(1);
      *value |= uint64_t{byte & 0x7Fu} << shift;
      if (byte < 0x80) return true;
    }
    return false;
  }

  bool ReadFixed(size_t size, uint64_t* value) {
    if (rest_.size() < size) return false;
    *value = 0;
    std::memcpy(value, rest_.data(), size);
    rest_.remove_prefix(size);
    return true;
  }

  absl::string_view rest_;
};

float FloatOf(const Field& field) {
  const auto bits = static_cast<uint32_t>(field.value);
  float value = 0;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

bool ReadPiece(absl::string_view bytes, SentencePieceModel::Piece* piece) {
  MessageReader reader(bytes);
  Field field;
  while (!reader.done()) {
    if (!reader.Next(&field)) return false;
    if (field.number == 1 && field.wire == Wire::kBytes) piece->text = std::string(field.bytes);
    if (field.number == 2 && field.wire == Wire::kFixed32) piece->score = FloatOf(field);
    if (field.number == 3 && field.wire == Wire::kVarint) {
      if (field.value < 1 || field.value > 6) return false;
      piece->type = static_cast<int32_t>(field.value);
    }
  }
  return true;
}

// The message stores int32 ids as 64-bit varints.
int64_t IdOf(const Field& field) { return static_cast<int32_t>(field.value); }

bool ReadTrainerSpec(absl::string_view bytes, SentencePieceModel* model) {
  MessageReader reader(bytes);
  Field field;
  while (!reader.done()) {
    if (!reader.Next(&field)) return false;
    if (field.wire != Wire::kVarint) continue;
    switch (field.number) {
      case 3:
        if (field.value < 1 || field.value > 4) return false;
        model->kind = static_cast<SentencePieceModel::Kind>(field.value);
        break;
      case 24:
        model->whitespace_as_suffix = field.value != 0;
        break;
      case 40:
        model->unknown_id = IdOf(field);
        break;
      case 41:
        model->bos_id = IdOf(field);
        break;
      case 42:
        model->eos_id = IdOf(field);
        break;
      case 43:
        model->padding_id = IdOf(field);
        break;
      default:
        break;
    }
  }
  return true;
}

bool ReadNormalizerSpec(absl::string_view bytes, SentencePieceModel* model) {
  MessageReader reader(bytes);
  Field field;
  while (!reader.done()) {
    if (!reader.Next(&field)) return false;
    if (field.number == 2 && field.wire == Wire::kBytes) {
      model->charsmap = std::string(field.bytes);
    }
    if (field.wire != Wire::kVarint) continue;
    if (field.number == 3) model->add_dummy_prefix = field.value != 0;
    if (field.number == 4) model->remove_extra_whitespaces = field.value != 0;
    if (field.number == 5) model->escape_whitespaces = field.value != 0;
  }
  return true;
}

absl::Status CheckSupported(const std::string& path, const SentencePieceModel& model) {
  if (model.kind != SentencePieceModel::Kind::kBpe &&
      model.kind != SentencePieceModel::Kind::kUnigram) {
    return FileUnsupported(path, "trainer_spec.model_type",
                           absl::StrCat(static_cast<int>(model.kind),
                                        " is not supported, expected 1 (unigram) or 2 (BPE)"));
  }
  if (model.whitespace_as_suffix) {
    return FileUnsupported(path, "trainer_spec.treat_whitespace_as_suffix",
                           "true is not supported, expected false");
  }
  if (!model.charsmap.empty()) {
    return FileUnsupported(path, "normalizer_spec.precompiled_charsmap",
                           "a table of replacements is not supported, expected none (identity)");
  }
  if (!model.escape_whitespaces) {
    return FileUnsupported(path, "normalizer_spec.escape_whitespaces",
                           "false is not supported, expected true");
  }
  return absl::OkStatus();
}

// Adds the tokens of "added_tokens_decoder" in tokenizer_config.json, which has the form {ID:
// TOKEN}. Some of them are already tokens of the model.
absl::Status AddDecoderTokens(const JsonMembers& config, Vocabulary* vocabulary) {
  const Json* tokens = config.Find("added_tokens_decoder");
  if (tokens == nullptr) return absl::OkStatus();
  if (!tokens->is_object()) {
    return config.Error("added_tokens_decoder", "expected an object {ID: TOKEN}");
  }
  Json list = Json::array();
  for (const auto& [id, token] : tokens->items()) {
    int64_t number = 0;
    if (!absl::SimpleAtoi(id, &number) || !token.is_object()) {
      return config.Error("added_tokens_decoder",
                          absl::StrCat(Quote(id), ", expected the id of a token, and an object"));
    }
    Json entry = token;
    entry["id"] = number;
    list.push_back(std::move(entry));
  }
  return vocabulary->AddAdded(&list);
}

}  // namespace

absl::StatusOr<SentencePieceModel> ParseSentencePiece(const std::string& path,
                                                      absl::string_view bytes) {
  SentencePieceModel model;
  const auto broken = [&path](absl::string_view where) {
    return FileError(
        path, "",
        absl::StrCat("broken in ", where, ", expected a SentencePiece model; download it again"));
  };
  MessageReader reader(bytes);
  Field field;
  while (!reader.done()) {
    if (!reader.Next(&field)) return broken("its outermost message");
    if (field.wire != Wire::kBytes) continue;
    if (field.number == 1) {
      if (model.pieces.size() == kMaxPieces) return broken("its number of pieces");
      if (!ReadPiece(field.bytes, &model.pieces.emplace_back())) {
        return broken(absl::StrCat("piece ", model.pieces.size() - 1));
      }
    }
    if (field.number == 2 && !ReadTrainerSpec(field.bytes, &model)) return broken("trainer_spec");
    if (field.number == 3 && !ReadNormalizerSpec(field.bytes, &model)) {
      return broken("normalizer_spec");
    }
  }
  if (model.pieces.empty()) return broken("its pieces: there are none");
  return model;
}

absl::Status ReadSentencePiece(const std::string& path, absl::string_view bytes,
                               const TokenizerFiles& files, GgufMetadata* metadata) {
  ASSIGN_OR_RETURN(const SentencePieceModel model, ParseSentencePiece(path, bytes));
  RETURN_IF_ERROR(CheckSupported(path, model));
  Vocabulary vocabulary(path);
  std::vector<float> scores;
  for (const SentencePieceModel::Piece& piece : model.pieces) {
    RETURN_IF_ERROR(
        vocabulary.Add(piece.text, vocabulary.size(), static_cast<TokenType>(piece.type)));
    scores.push_back(piece.score);
  }
  const Json none = Json::object();
  const JsonMembers config(files.config_path, files.config->is_null() ? none : *files.config);
  RETURN_IF_ERROR(AddDecoderTokens(config, &vocabulary));
  RETURN_IF_ERROR(vocabulary.FillGaps());
  scores.resize(vocabulary.size(), -1000);
  vocabulary.Write(metadata);
  const bool is_bpe = model.kind == SentencePieceModel::Kind::kBpe;
  metadata->SetString("tokenizer.ggml.model", is_bpe ? "llama" : "t5");
  metadata->SetString("tokenizer.ggml.pre", "default");
  metadata->SetF32s("tokenizer.ggml.scores", scores);
  metadata->SetBool("tokenizer.ggml.add_space_prefix", model.add_dummy_prefix);
  metadata->SetBool("tokenizer.ggml.remove_extra_whitespaces", model.remove_extra_whitespaces);
  ConfigTokens tokens = *files.tokens;
  tokens.bos_by_id = true;
  const auto prefer = [&](int64_t id, std::vector<int64_t>* ids) {
    if (ids->empty() && id >= 0) ids->push_back(id);
  };
  prefer(model.bos_id, &tokens.bos);
  prefer(model.eos_id, &tokens.eos);
  prefer(model.padding_id, &tokens.padding);
  RETURN_IF_ERROR(WriteSpecialTokens(vocabulary, config, tokens, metadata));
  if (model.unknown_id >= 0 && model.unknown_id < vocabulary.size()) {
    metadata->SetU32("tokenizer.ggml.unknown_token_id", static_cast<uint32_t>(model.unknown_id));
  }
  // These are the defaults of transformers' LlamaTokenizer.
  ASSIGN_OR_RETURN(const bool add_bos, config.BoolOr("add_bos_token", true));
  ASSIGN_OR_RETURN(const bool add_eos, config.BoolOr("add_eos_token", false));
  metadata->SetBool("tokenizer.ggml.add_bos_token", add_bos);
  metadata->SetBool("tokenizer.ggml.add_eos_token", add_eos);
  return absl::OkStatus();
}

}  // namespace tidepool::engine::hf
