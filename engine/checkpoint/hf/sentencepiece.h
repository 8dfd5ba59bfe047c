// Converts tokenizer.model, a SentencePiece model, to GGUF metadata. The file is the protobuf
// message ModelProto of sentencepiece_model.proto. The parser reads only the fields that affect
// token ids.
#ifndef TIDEPOOL_ENGINE_CHECKPOINT_HF_SENTENCEPIECE_H_
#define TIDEPOOL_ENGINE_CHECKPOINT_HF_SENTENCEPIECE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/checkpoint/gguf_file_writer.h"
#include "engine/checkpoint/hf/tokenizer_json.h"

namespace tidepool::engine::hf {

struct SentencePieceModel {
  enum class Kind : int32_t { kUnigram = 1, kBpe = 2, kWord = 3, kChar = 4 };

  struct Piece {
    std::string text;
    float score = 0;
    int32_t type = 1;  // GGUF and SentencePiece use the same numbers
  };
  std::vector<Piece> pieces;
  Kind kind = Kind::kUnigram;
  bool whitespace_as_suffix = false;
  int64_t unknown_id = 0;
  int64_t bos_id = 1;
  int64_t eos_id = 2;
  int64_t padding_id = -1;
  std::string charsmap;  // table of character replacements; empty if there is none
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;
};

// Returns INVALID_ARGUMENT "PATH: ..." if the bytes are not a ModelProto or a piece has an unknown
// type.
absl::StatusOr<SentencePieceModel> ParseSentencePiece(const std::string& path,
                                                      absl::string_view bytes);

// Sets tokenizer.ggml.* from tokenizer.model, its added tokens, and the flags of
// tokenizer_config.json. Returns the same errors as ReadTokenizerJson.
absl::Status ReadSentencePiece(const std::string& path, absl::string_view bytes,
                               const TokenizerFiles& files, GgufMetadata* metadata);

}  // namespace tidepool::engine::hf

#endif  // TIDEPOOL_ENGINE_CHECKPOINT_HF_SENTENCEPIECE_H_
