#include "engine/tokenizer/load_tokenizer.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "engine/tokenizer/tokenizer_spec.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/utf8.h"

namespace tidepool::engine {
namespace {

// Adds the file's name to an error of Create, which does not know the name. The error begins with a
// key, which is replaced by the key's name in the file. Also limits the message, because it may
// quote untrusted text of the file.
absl::Status InFile(const Checkpoint& file, const absl::Status& status) {
  constexpr size_t kMaxBytes = 1000;
  const std::string whole(status.message());
  const size_t key = std::min(whole.find_first_of(" ["), whole.size());
  const FilePlace place = file.PlaceOf(whole.substr(0, key));
  const std::string message = absl::StrCat(place.name, whole.substr(key));
  std::string line;
  base::AppendUtf8Lossy(absl::string_view(message).substr(0, kMaxBytes), &line);
  std::replace_if(
      line.begin(), line.end(), [](unsigned char c) { return absl::ascii_iscntrl(c); }, ' ');
  return absl::Status(
      status.code(), absl::StrCat(place.path, ": ", line, message.size() > kMaxBytes ? "..." : ""));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(const Checkpoint& file) {
  constexpr absl::string_view kMerges = "tokenizer.ggml.merges";
  ASSIGN_OR_RETURN(TokenizerSpec spec, ReadTokenizerSpec(file));
  if (spec.model == "gpt2" && !file.HasKey(kMerges)) {
    return file.Error(kMerges,
                      "missing, expected the merges of the byte-level BPE: convert the "
                      "model again");
  }
  constexpr absl::string_view kCharsmap = "tokenizer.ggml.precompiled_charsmap";
  if (file.HasKey(kCharsmap)) {
    return absl::UnimplementedError(
        file.Error(kCharsmap, "a table of replacements is not supported, expected no such key")
            .message());
  }
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::Create(std::move(spec));
  if (!tokenizer.ok()) return InFile(file, tokenizer.status());
  return tokenizer;
}

}  // namespace tidepool::engine
