#include "moe/trace/trace_writer.h"

#include <zstd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "nlohmann/json.hpp"

namespace tidepool::moe {
namespace {

constexpr size_t kTextBytes = size_t{1} << 16;

// Writes one value if all values are equal, otherwise an array. one(i) returns the text of value i.
template <typename Values, typename One>
void AppendPerToken(const Values& values, One one, std::string* text) {
  bool same = true;
  for (const auto& value : values) same = same && value == values.front();
  if (same) {
    absl::StrAppend(text, one(values.front()));
    return;
  }
  const char* separator = "[";
  for (const auto& value : values) {
    absl::StrAppend(text, separator, one(value));
    separator = ",";
  }
  absl::StrAppend(text, "]");
}

// Writes an array of arrays. `values` is [tokens, top_k].
template <typename Values, typename One>
void AppendRows(const Values& values, int top_k, One one, std::string* text) {
  absl::StrAppend(text, "[");
  for (size_t i = 0; i < values.size(); ++i) {
    if (i % top_k == 0) absl::StrAppend(text, i == 0 ? "[" : "],[");
    absl::StrAppend(text, i % top_k == 0 ? "" : ",", one(values[i]));
  }
  absl::StrAppend(text, values.empty() ? "]" : "]]");
}

}  // namespace

void TraceWriter::FreeStream::operator()(ZSTD_CCtx_s* stream) const { ZSTD_freeCCtx(stream); }

absl::StatusOr<std::unique_ptr<TraceWriter>> TraceWriter::Create(const std::string& path,
                                                                 const TraceHeader& header) {
  RETURN_IF_ERROR(header.Validate());
  std::unique_ptr<TraceWriter> writer(new TraceWriter(path, header));
  writer->file_.reset(std::fopen(path.c_str(), "wb"));
  if (writer->file_ == nullptr) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot write the trace ", path));
  }
  if (absl::EndsWith(path, ".zst")) {
    writer->stream_.reset(ZSTD_createCCtx());
    writer->out_.resize(ZSTD_CStreamOutSize());
  }
  RETURN_IF_ERROR(writer->WriteHeader());
  return writer;
}

TraceWriter::~TraceWriter() {
  if (file_ != nullptr) Close().IgnoreError();
}

absl::Status TraceWriter::WriteHeader() {
  nlohmann::ordered_json line = {{"version", 1},
                                 {"model", header_.model},
                                 {"layers", header_.layers},
                                 {"experts", header_.experts},
                                 {"top_k", header_.top_k}};
  bool same = true;
  for (const int64_t bytes : header_.expert_bytes) same = same && bytes == header_.expert_bytes[0];
  if (same) {
    line["expert_bytes"] = header_.expert_bytes[0];
  } else {
    line["expert_bytes"] = header_.expert_bytes;
  }
  const auto replace = nlohmann::ordered_json::error_handler_t::replace;
  text_ = line.dump(-1, ' ', false, replace) + "\n";
  return WriteText(Boundary::kFlush);
}

void TraceWriter::AppendRouting(const LayerRouting& routing) {
  const Phase decode[] = {Phase::kDecode};
  const int64_t nobody[] = {0};
  const auto phases = routing.phases.empty() ? absl::MakeConstSpan(decode) : routing.phases;
  const auto requests = routing.requests.empty() ? absl::MakeConstSpan(nobody) : routing.requests;
  absl::StrAppend(&text_, "{\"request\":");
  AppendPerToken(
      requests, [](int64_t request) { return absl::StrCat("\"r", request, "\""); }, &text_);
  absl::StrAppend(&text_, ",\"phase\":");
  AppendPerToken(
      phases, [](Phase phase) { return phase == Phase::kPrefill ? "\"prefill\"" : "\"decode\""; },
      &text_);
  absl::StrAppend(&text_, ",\"step\":", routing.step, ",\"layer\":", routing.layer, ",\"ids\":");
  AppendRows(
      routing.ids, header_.top_k, [](int32_t id) { return id; }, &text_);
  if (!routing.weights.empty()) {
    absl::StrAppend(&text_, ",\"weights\":");
    AppendRows(
        routing.weights, header_.top_k,
        [](float weight) { return absl::StrFormat("%.9g", weight); }, &text_);
  }
  absl::StrAppend(&text_, "}\n");
}

absl::Status TraceWriter::Write(const LayerRouting& routing) {
  CHECK(file_ != nullptr) << "the trace is closed";
  CHECK(routing.layer >= 0 && routing.layer < header_.layers);
  CHECK_EQ(routing.ids.size(), static_cast<size_t>(routing.tokens * header_.top_k));
  RETURN_IF_ERROR(failure_);
  AppendRouting(routing);
  return text_.size() < kTextBytes ? absl::OkStatus() : WriteText(Boundary::kNone);
}

absl::Status TraceWriter::Flush() {
  RETURN_IF_ERROR(WriteText(Boundary::kFlush));
  if (std::fflush(file_.get()) != 0) {
    failure_ = absl::ErrnoToStatus(errno, absl::StrCat("cannot write the trace ", path_));
  }
  return failure_;
}

absl::Status TraceWriter::Close() {
  CHECK(file_ != nullptr) << "the trace is closed";
  absl::Status status = WriteText(Boundary::kEnd);
  if (std::fclose(file_.release()) != 0 && status.ok()) {
    status = absl::ErrnoToStatus(errno, absl::StrCat("cannot write the trace ", path_));
  }
  return status;
}

absl::Status TraceWriter::WriteText(Boundary boundary) {
  RETURN_IF_ERROR(failure_);
  if (stream_ == nullptr) {
    RETURN_IF_ERROR(WriteBytes(text_.data(), text_.size()));
    text_.clear();
    return absl::OkStatus();
  }
  const ZSTD_EndDirective directive = boundary == Boundary::kNone    ? ZSTD_e_continue
                                      : boundary == Boundary::kFlush ? ZSTD_e_flush
                                                                     : ZSTD_e_end;
  ZSTD_inBuffer in{text_.data(), text_.size(), 0};
  while (true) {
    ZSTD_outBuffer out{out_.data(), out_.size(), 0};
    const size_t left = ZSTD_compressStream2(stream_.get(), &out, &in, directive);
    CHECK(!ZSTD_isError(left)) << ZSTD_getErrorName(left);
    RETURN_IF_ERROR(WriteBytes(out_.data(), out.pos));
    if (in.pos == in.size && (directive == ZSTD_e_continue || left == 0)) break;
  }
  text_.clear();
  return absl::OkStatus();
}

absl::Status TraceWriter::WriteBytes(const char* bytes, size_t count) {
  if (std::fwrite(bytes, 1, count, file_.get()) != count) {
    failure_ = absl::ErrnoToStatus(errno, absl::StrCat("cannot write the trace ", path_));
  }
  return failure_;
}

}  // namespace tidepool::moe
