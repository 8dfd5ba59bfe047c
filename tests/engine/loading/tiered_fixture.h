// A model with experts in a pack file, and functions that damage files.
#ifndef TIDEPOOL_TESTS_ENGINE_LOADING_TIERED_FIXTURE_H_
#define TIDEPOOL_TESTS_ENGINE_LOADING_TIERED_FIXTURE_H_

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "engine/checkpoint/gguf.h"
#include "engine/checkpoint/gguf_file_writer.h"
#include "engine/evaluation/logits.h"
#include "engine/loading/model_bundle.h"
#include "gtest/gtest.h"
#include "kernels/base/check.h"
#include "kernels/base/mutex.h"
#include "kernels/device.h"
#include "tests/engine/model/test_backend.h"
#include "tools/synthetic/checkpoint.h"
#include "tools/synthetic/shape.h"

namespace tidepool::engine {

inline std::vector<int32_t> Tokens(int count) {
  std::vector<int32_t> tokens(count);
  for (int i = 0; i < count; ++i) tokens[i] = (i * 37 + 11) % 290;
  return tokens;
}

// Thread-safe. Collects the notes of a model.
class Notes {
 public:
  std::function<void(absl::string_view)> Taker() {
    return [this](absl::string_view line) {
      base::MutexLock lock(&mutex_);
      lines_.emplace_back(line);
    };
  }
  std::vector<std::string> lines() {
    base::MutexLock lock(&mutex_);
    return lines_;
  }

 private:
  base::Mutex mutex_;
  std::vector<std::string> lines_ TIDEPOOL_GUARDED_BY(mutex_);
};

inline std::string Read(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

// Flips a bit at each of these offsets of a file. A second call restores them.
inline void Flip(const std::string& path, const std::vector<int64_t>& places) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  for (const int64_t at : places) {
    file.seekg(at);
    const int byte = file.get();
    file.seekp(at);
    file.put(static_cast<char>(byte ^ 16));
  }
}

class TieredModelTest : public testing::Test {
 protected:
  TieredModelTest() {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directory(folder_);
    CHECK_OK(tools::WriteSynthetic(*tools::FindShape("tiny-moe"), model_,
                                   {.type = GgmlType::kQ4_K, .seed = 9})
                 .status());
  }
  ~TieredModelTest() override { std::filesystem::remove_all(folder_); }

  // Returns the options for a load. If experts have a memory limit, the model runs on a device, and
  // the host's memory has the same limit.
  static LoadOptions OptionsFor(ExpertOptions experts, int threads = 2) {
    LoadOptions options = {.threads = threads, .experts = std::move(experts)};
    if (options.experts.memory.kind == ExpertMemoryKind::kAuto) return options;
    options.device = TestDevice();
    options.make_backend = MakeLoaderBackend;
    if (options.device == kernels::Device::kCuda) {
      options.experts.host_memory = options.experts.memory;
    }
    return options;
  }

  static std::unique_ptr<ModelBundle> MustLoad(const std::string& path, ExpertOptions experts,
                                               int threads = 2) {
    auto bundle = LoadModel(path, OptionsFor(std::move(experts), threads));
    CHECK_OK(bundle.status());
    return *std::move(bundle);
  }

  // Returns all logits of the tokens, computed in passes of `chunk` rows.
  static absl::StatusOr<std::vector<float>> Logits(ModelBundle* bundle, int chunk,
                                                   int tokens = 24) {
    std::vector<float> all;
    const absl::Status status = ComputeLogits(bundle->model.get(), Tokens(tokens),
                                              {.chunk_rows = chunk, .rows = LogitRows::kAll},
                                              [&](int64_t, absl::Span<const float> logits) {
                                                all.insert(all.end(), logits.begin(), logits.end());
                                                return absl::OkStatus();
                                              });
    if (!status.ok()) return status;
    return all;
  }

  // Writes the model with a larger type in the last layer's experts, like files with mixed types.
  std::string WriteMixed() const {
    const std::string larger = folder_ + "/larger.gguf";
    CHECK_OK(tools::WriteSynthetic(*tools::FindShape("tiny-moe"), larger,
                                   {.type = GgmlType::kQ8_0, .seed = 9})
                 .status());
    const GgufFile files[] = {*GgufFile::Open(model_), *GgufFile::Open(larger)};
    GgufMetadata metadata;
    for (const GgufEntry& entry : files[0].metadata()) metadata.Copy(entry);
    std::vector<const GgufTensor*> tensors;
    std::vector<GgufTensorPlan> plans;
    for (const GgufTensor& tensor : files[0].tensors()) {
      const bool is_large =
          absl::StartsWith(tensor.name, "blk.2.") && absl::StrContains(tensor.name, "_exps");
      const GgufTensor* const taken = files[is_large ? 1 : 0].FindTensor(tensor.name);
      tensors.push_back(taken);
      plans.push_back({.name = std::string(taken->name),
                       .type = taken->type,
                       .dim_count = taken->dim_count,
                       .dims = taken->dims});
    }
    std::string mixed = folder_ + "/mixed.gguf";
    auto writer =
        GgufFileWriter::Create(mixed, metadata, std::move(plans), base::ExistingFile::kReplace);
    CHECK_OK(writer.status());
    for (const GgufTensor* tensor : tensors) {
      CHECK_OK((*writer)->Append(absl::MakeConstSpan(tensor->data, tensor->bytes)));
    }
    CHECK_OK((*writer)->Finish());
    return mixed;
  }

  // Damages all records of the second layer, in the pack and in the checkpoint.
  void FlipRecords() const {
    const auto size = static_cast<int64_t>(std::filesystem::file_size(pack_));
    const int64_t record = (size - 4096) / 48;
    std::vector<int64_t> places(16);
    for (int i = 0; i < 16; ++i) places[i] = 4096 + (16 + i) * record + record / 2;
    Flip(pack_, places);
  }
  void FlipExperts() const {
    const GgufTensor tensor = *GgufFile::Open(model_)->FindTensor("blk.1.ffn_up_exps.weight");
    std::vector<int64_t> places(16);
    const auto expert = static_cast<int64_t>(tensor.bytes / 16);
    for (int i = 0; i < 16; ++i) {
      places[i] = static_cast<int64_t>(tensor.file_offset) + (i + 1) * expert - 9;
    }
    Flip(model_, places);
  }

  static ExpertOptions Share(double share) {
    return {.memory = {.kind = ExpertMemoryKind::kShare, .share = share}};
  }

  const std::string folder_ = testing::TempDir() + "/tiered_model_test";
  const std::string model_ = folder_ + "/model.gguf";
  const std::string pack_ = model_ + ".tidepack";
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_TESTS_ENGINE_LOADING_TIERED_FIXTURE_H_
