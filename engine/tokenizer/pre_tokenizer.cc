#include "engine/tokenizer/pre_tokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine {
namespace {

struct Deleter {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};

std::string ErrorText(int error) {
  PCRE2_UCHAR buffer[256];
  pcre2_get_error_message(error, buffer, sizeof(buffer));
  return reinterpret_cast<const char*>(buffer);
}

}  // namespace

// One compiled pattern. pcre2_match does not change it.
class PreTokenizer::Pass {
 public:
  explicit Pass(pcre2_code* code) : code_(code) {}
  const pcre2_code* code() const { return code_.get(); }

 private:
  std::unique_ptr<pcre2_code, Deleter> code_;
};

// The temporary data of one call of Split.
struct PreTokenizer::Scratch {
  std::unique_ptr<pcre2_match_data, Deleter> match{pcre2_match_data_create(1, nullptr)};
  std::unique_ptr<pcre2_match_context, Deleter> context{pcre2_match_context_create(nullptr)};
};

PreTokenizer::PreTokenizer() = default;
PreTokenizer::PreTokenizer(PreTokenizer&&) noexcept = default;
PreTokenizer& PreTokenizer::operator=(PreTokenizer&&) noexcept = default;
PreTokenizer::~PreTokenizer() = default;

absl::StatusOr<PreTokenizer> PreTokenizer::Create(const std::vector<std::string>& passes) {
  PreTokenizer result;
  for (const std::string& pattern : passes) {
    int error = 0;
    PCRE2_SIZE offset = 0;
    pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                     PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr);
    if (code == nullptr) {
      return absl::InternalError(
          absl::StrCat("pre-tokenizer pattern ", pattern, " at ", offset, ": ", ErrorText(error)));
    }
    result.passes_.emplace_back(code);
    // If the system forbids generated code, PCRE2 uses its interpreter. The results are the same,
    // but it is slower.
    pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
  }
  return result;
}

absl::Status PreTokenizer::Split(absl::string_view text,
                                 absl::FunctionRef<void(absl::string_view)> emit) const {
  Scratch scratch;
  // All patterns take linear time: a few dozen steps per byte. This limit is only for safety.
  constexpr uint64_t kStepsPerByte = 100;
  const uint64_t limit = 10'000 + kStepsPerByte * text.size();
  pcre2_set_match_limit(scratch.context.get(), static_cast<uint32_t>(std::min<uint64_t>(
                                                   limit, std::numeric_limits<uint32_t>::max())));
  return SplitFrom(0, text, &scratch, emit);
}

absl::Status PreTokenizer::SplitFrom(size_t pass, absl::string_view text, Scratch* scratch,
                                     absl::FunctionRef<void(absl::string_view)> emit) const {
  if (text.empty()) return absl::OkStatus();
  if (pass == passes_.size()) {
    emit(text);
    return absl::OkStatus();
  }
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  size_t done = 0;
  while (done < text.size()) {
    const int matched =
        pcre2_match(passes_[pass].code(), subject, text.size(), done, PCRE2_NO_UTF_CHECK,
                    scratch->match.get(), scratch->context.get());
    if (matched == PCRE2_ERROR_NOMATCH) break;
    if (matched < 0) {
      return absl::ResourceExhaustedError(
          absl::StrCat("text cannot be split into words: ", ErrorText(matched)));
    }
    // The later passes overwrite the match data, so copy both ends of the match now.
    const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(scratch->match.get());
    const size_t begin = ends[0];
    const size_t end = ends[1];
    CHECK_GT(end, begin) << "a pre-tokenizer pattern matched nothing";
    RETURN_IF_ERROR(SplitFrom(pass + 1, text.substr(done, begin - done), scratch, emit));
    RETURN_IF_ERROR(SplitFrom(pass + 1, text.substr(begin, end - begin), scratch, emit));
    done = end;
  }
  return SplitFrom(pass + 1, text.substr(done), scratch, emit);
}

}  // namespace tidepool::engine
