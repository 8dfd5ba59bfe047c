#include "moe/trace/trace.h"

#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/base/status_macros.h"
#include "moe/trace/trace_parser.h"

namespace tidepool::moe {
namespace {

constexpr absl::string_view kZstdMagic("\x28\xb5\x2f\xfd", 4);

// Passes the bytes of a file or a string to the parser in pieces. Decompresses the bytes if
// necessary.
class Inflater {
 public:
  Inflater(const std::string& name, TraceParser* parser) : name_(name), parser_(parser) {}

  absl::Status Add(absl::string_view bytes) {
    if (!begun_) {
      begun_ = true;
      if (absl::StartsWith(bytes, kZstdMagic)) {
        stream_.reset(ZSTD_createDStream());
        out_.resize(ZSTD_DStreamOutSize());
      }
    }
    if (stream_ == nullptr) return parser_->Add(bytes);
    ZSTD_inBuffer in{bytes.data(), bytes.size(), 0};
    while (true) {
      ZSTD_outBuffer out{out_.data(), out_.size(), 0};
      const size_t result = ZSTD_decompressStream(stream_.get(), &out, &in);
      if (ZSTD_isError(result)) {
        return absl::DataLossError(absl::StrCat(
            name_, ": damaged zstd data: ", ZSTD_getErrorName(result), "; copy it again"));
      }
      inside_frame_ = result != 0;
      RETURN_IF_ERROR(parser_->Add(absl::string_view(out_.data(), out.pos)));
      if (in.pos == in.size && out.pos < out_.size()) return absl::OkStatus();
    }
  }

  absl::Status Finish() const {
    if (stream_ == nullptr || !inside_frame_) return absl::OkStatus();
    return absl::DataLossError(absl::StrCat(name_,
                                            ": the zstd data ends early; copy the file again, or "
                                            "stop the server that writes it with SIGTERM first"));
  }

 private:
  struct FreeStream {
    void operator()(ZSTD_DStream* stream) const { ZSTD_freeDStream(stream); }
  };

  const std::string& name_;
  TraceParser* const parser_;
  bool begun_ = false;
  bool inside_frame_ = false;
  std::unique_ptr<ZSTD_DStream, FreeStream> stream_;
  std::vector<char> out_;
};

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

}  // namespace

absl::Status TraceHeader::Validate() const {
  const PoolShape shape{
      .layers = layers, .experts = experts, .top_k = top_k, .slots = int64_t{layers} * experts};
  RETURN_IF_ERROR(shape.Validate());
  if (static_cast<int>(expert_bytes.size()) != layers) {
    return absl::InvalidArgumentError(
        absl::StrFormat("expert_bytes has %d entries; it must have %d, one for each layer",
                        expert_bytes.size(), layers));
  }
  return absl::OkStatus();
}

int64_t TraceHeader::slot_bytes() const {
  return *std::max_element(expert_bytes.begin(), expert_bytes.end());
}

LayerRouting TraceEntry::routing(int top_k) const {
  return {.step = step,
          .layer = layer,
          .tokens = tokens(top_k),
          .ids = ids,
          .weights = weights,
          .phases = phases,
          .requests = requests};
}

bool BeginsForward(const TraceEntry* last, const TraceEntry& entry) {
  return last == nullptr || entry.step != last->step || entry.layer <= last->layer;
}

absl::StatusOr<Trace> ReadTrace(const std::string& path) {
  const std::unique_ptr<std::FILE, CloseFile> file(std::fopen(path.c_str(), "rb"));
  if (file == nullptr) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot read the trace ", path));
  }
  TraceParser parser(path);
  Inflater inflater(path, &parser);
  std::vector<char> bytes(size_t{1} << 17);
  while (const size_t count = std::fread(bytes.data(), 1, bytes.size(), file.get())) {
    RETURN_IF_ERROR(inflater.Add(absl::string_view(bytes.data(), count)));
  }
  if (std::ferror(file.get())) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot read the trace ", path));
  }
  RETURN_IF_ERROR(inflater.Finish());
  return parser.Finish();
}

absl::StatusOr<Trace> ParseTrace(const std::string& name, absl::string_view bytes) {
  TraceParser parser(name);
  Inflater inflater(name, &parser);
  RETURN_IF_ERROR(inflater.Add(bytes));
  RETURN_IF_ERROR(inflater.Finish());
  return parser.Finish();
}

std::vector<int64_t> CountUses(const Trace& trace) {
  std::vector<int64_t> uses(trace.header.all_experts(), 0);
  // 1 + the index of the last entry that needed the expert; 0 if there is none
  std::vector<size_t> seen(uses.size(), 0);
  for (size_t i = 0; i < trace.entries.size(); ++i) {
    const TraceEntry& entry = trace.entries[i];
    for (const int32_t expert : entry.ids) {
      const int64_t index = int64_t{entry.layer} * trace.header.experts + expert;
      uses[index] += std::exchange(seen[index], i + 1) != i + 1;
    }
  }
  return uses;
}

absl::StatusOr<std::vector<int64_t>> ReadProfile(const std::string& path, int layers, int experts) {
  ASSIGN_OR_RETURN(const Trace profile, ReadTrace(path));
  if (profile.header.layers == layers && profile.header.experts == experts) {
    return CountUses(profile);
  }
  return absl::InvalidArgumentError(absl::StrCat(
      path, " is a profile with ", profile.header.layers, " layers of ", profile.header.experts,
      " experts, expected ", layers, " of ", experts, "; use a trace of the same model"));
}

}  // namespace tidepool::moe
