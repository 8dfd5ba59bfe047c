#include "tests/engine/model/golden_data.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <numeric>
#include <sstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "engine/checkpoint/open_checkpoint.h"
#include "gtest/gtest.h"
#include "kernels/base/check.h"

namespace tidepool::engine {
namespace {

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  CHECK(file.good()) << path << ": cannot be read";
  std::stringstream content;
  content << file.rdbuf();
  return content.str();
}

template <typename T>
const char* NpyType();
template <>
const char* NpyType<float>() {
  return "'<f4'";
}
template <>
const char* NpyType<double>() {
  return "'<f8'";
}
template <>
const char* NpyType<int32_t>() {
  return "'<i4'";
}

}  // namespace

// Reads the .npy format 1.0: magic, length as u16, a Python dict as text, data.
template <typename T>
NpyArray<T> ReadNpy(const std::string& path) {
  const std::string bytes = ReadFile(path);
  CHECK(bytes.size() > 10 && bytes.compare(0, 8, std::string("\x93NUMPY\x01\x00", 8)) == 0) << path;
  uint16_t length = 0;
  std::memcpy(&length, bytes.data() + 8, sizeof(length));
  CHECK_GE(bytes.size(), size_t{10} + length);
  const std::string header = bytes.substr(10, length);
  CHECK(header.find(NpyType<T>()) != std::string::npos) << path << ": " << header;
  CHECK(header.find("'fortran_order': False") != std::string::npos) << path << ": " << header;
  const size_t open = header.find('(');
  const std::string shape = header.substr(open + 1, header.find(')') - open - 1);

  NpyArray<T> array;
  int64_t count = 1;
  for (absl::string_view part : absl::StrSplit(shape, ',', absl::SkipWhitespace())) {
    int64_t size = 0;
    CHECK(absl::SimpleAtoi(part, &size)) << path << ": " << header;
    array.shape.push_back(size);
    count *= size;
  }
  array.values.resize(count);
  CHECK_EQ(bytes.size() - 10 - length, count * sizeof(T));
  std::memcpy(array.values.data(), bytes.data() + 10 + length, count * sizeof(T));
  return array;
}
template NpyArray<float> ReadNpy(const std::string&);
template NpyArray<double> ReadNpy(const std::string&);
template NpyArray<int32_t> ReadNpy(const std::string&);

nlohmann::json ReadJson(const std::string& path) { return nlohmann::json::parse(ReadFile(path)); }

LoadedModel Load(const std::string& path, const RunOptions& options) {
  LoadedModel loaded;
  auto file = OpenCheckpoint(path);
  CHECK_OK(file.status());
  auto config = ModelConfig::Parse(*file);
  CHECK_OK(config.status());
  loaded.backend = MakeTestBackend({.backend = options.backend,
                                    .threads = options.threads,
                                    .precision = options.precision,
                                    .isa = options.isa});
  auto store =
      WeightStore::Create(*std::move(file), {.threads = 2, .backend = loaded.backend.get()});
  CHECK_OK(store.status());
  loaded.store = *std::move(store);
  auto model = TransformerModel::Create(*config, loaded.store.get(), loaded.backend.get(),
                                        {.kv_dtype = options.kv_dtype});
  CHECK_OK(model.status());
  loaded.model = *std::move(model);
  return loaded;
}

std::vector<float> AllLogits(TransformerModel* model, absl::Span<const int32_t> ids,
                             int64_t chunk_rows) {
  std::vector<float> all;
  CHECK_OK(ComputeLogits(model, ids, {.chunk_rows = chunk_rows, .rows = LogitRows::kAll},
                         [&](int64_t position, absl::Span<const float> row) {
                           CHECK_EQ(position * row.size(), all.size());
                           all.insert(all.end(), row.begin(), row.end());
                           return absl::OkStatus();
                         }));
  CHECK_EQ(all.size(), ids.size() * model->vocab_size());
  return all;
}

void FillWithNans(const Model& model, absl::Span<std::byte> memory) {
  const std::vector<std::byte> nans(memory.size(), std::byte{0xff});
  model.backend()->CopyIn(nans, memory.data());
}

Difference Compare(const std::vector<float>& ours, const std::vector<float>& truth) {
  EXPECT_EQ(ours.size(), truth.size());
  Difference difference;
  for (size_t i = 0; i < truth.size(); ++i) {
    // Written so that a NaN counts as an infinite error.
    const double error = std::abs(static_cast<double>(ours[i]) - truth[i]);
    difference.most = error <= difference.most ? difference.most : error;
    difference.mean += error / static_cast<double>(truth.size());
  }
  if (std::isnan(difference.mean)) difference.most = INFINITY;
  return difference;
}

GreedyRun::GreedyRun(TransformerModel* model, int64_t slots)
    : model_(model),
      kv_(*model, 1, slots),
      workspace_(model->WorkspaceBytes({.rows = slots, .logit_rows = 1}), model->memory()),
      slots_(slots) {}

int32_t GreedyRun::Next(const std::vector<int32_t>& ids) {
  Batch batch;
  batch.spans.resize(1);
  RowSpan& span = batch.spans[0];
  span.first_slot = slots_used_;
  span.slot_limit = slots_;
  span.token_ids = ids;
  span.logit_rows = {static_cast<int32_t>(ids.size() - 1)};
  kv_.SetBlocks(0, &span);
  slots_used_ += span.rows();
  const auto step = model_->Forward(batch, kv_.view(), &workspace_);
  CHECK_OK(step.status());
  kv_.Commit(0);
  const float* logits = step->logits.Row(0);
  return static_cast<int32_t>(std::max_element(logits, logits + step->logits.cols) - logits);
}

std::string RealModelPath() {
  const char* path = std::getenv("TIDEPOOL_TEST_MODEL");
  CHECK(path != nullptr) << "TIDEPOOL_TEST_MODEL is not set: it names SmolLM2's GGUF file";
  return path;
}

}  // namespace tidepool::engine
