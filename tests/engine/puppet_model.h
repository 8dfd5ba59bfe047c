// PuppetModel: a whole model whose reads of experts the test controls.
//
//   PuppetModels models(testing::TempDir() + "/my_test");
//   models.Write(*tools::FindShape("tiny-moe"), GgmlType::kQ4_K);
//   PuppetModel made = models.Make({.slots = 12}, {.threads = 2, .seed = 1});
//   made.puppet->set_fate(...);
#ifndef TIDEPOOL_TESTS_ENGINE_PUPPET_MODEL_H_
#define TIDEPOOL_TESTS_ENGINE_PUPPET_MODEL_H_

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "engine/checkpoint/ggml_type.h"
#include "engine/checkpoint/gguf.h"
#include "engine/checkpoint/weight_store.h"
#include "engine/loading/tiered_model.h"
#include "engine/model/model_config.h"
#include "engine/model/transformer.h"
#include "kernels/base/check.h"
#include "kernels/cpu/cpu_backend.h"
#include "moe/tiered_experts.h"
#include "tests/moe/puppet_reader.h"
#include "tools/synthetic/checkpoint.h"
#include "tools/synthetic/shape.h"

namespace tidepool::engine {

// The model with all objects that it depends on.
struct PuppetModel {
  std::unique_ptr<kernels::KernelBackend> backend;
  std::unique_ptr<WeightStore> store;
  moe::PuppetReader* puppet = nullptr;
  moe::TieredExperts* tiered = nullptr;
  std::unique_ptr<TransformerModel> model;
};

// A random checkpoint in its own folder, and models that use it. Outlives the models.
class PuppetModels {
 public:
  // The folder is emptied.
  explicit PuppetModels(std::string folder) : folder_(std::move(folder)) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directory(folder_);
  }
  ~PuppetModels() { std::filesystem::remove_all(folder_); }
  PuppetModels(const PuppetModels&) = delete;
  PuppetModels& operator=(const PuppetModels&) = delete;

  void Write(const tools::Shape& shape, GgmlType type) const {
    CHECK_OK(tools::WriteSynthetic(shape, path_, {.type = type, .seed = 9}).status());
  }
  // Uses a copy of this checkpoint.
  void Copy(const std::string& checkpoint) const { std::filesystem::copy(checkpoint, path_); }
  const std::string& path() const { return path_; }

  struct MakeOptions {
    int threads = 1;
    int seed = 1;  // seed of the order in which reads end
  };
  // Packs on first use. The experts' records are read from memory. Fields of `tiered` that depend
  // on the model are filled in.
  PuppetModel Make(moe::TieredOptions tiered, const MakeOptions& options) {
    PuppetModel made;
    made.backend = *kernels::MakeCpuBackend({.threads = options.threads});
    made.store = *WeightStore::Create(*GgufFile::Open(path_),
                                      {.threads = options.threads, .backend = made.backend.get()});
    const ModelConfig config = *ModelConfig::Parse(made.store->file());
    auto records = OpenPack(
        config, {.store = made.store.get(), .digest = std::string(32, 'd'), .path = pack_});
    CHECK_OK(records.status());
    if (bytes_.empty()) ReadPackFile();
    auto reader = std::make_unique<moe::PuppetReader>(&bytes_, options.seed);
    made.puppet = reader.get();
    tiered.top_k = config.moe.experts_used;
    tiered.layer_numbers.resize(config.moe_layers());
    std::iota(tiered.layer_numbers.begin(), tiered.layer_numbers.end(), 0);
    auto experts =
        moe::TieredExperts::Create(*std::move(records), std::move(reader), std::move(tiered));
    CHECK_OK(experts.status());
    made.tiered = experts->get();
    auto model = TransformerModel::Create(config, made.store.get(), made.backend.get(),
                                          {.experts = *std::move(experts)});
    CHECK_OK(model.status());
    made.model = *std::move(model);
    return made;
  }

 private:
  void ReadPackFile() {
    std::ifstream file(pack_, std::ios::binary);
    bytes_.resize(std::filesystem::file_size(pack_));
    file.read(reinterpret_cast<char*>(bytes_.data()), static_cast<int64_t>(bytes_.size()));
  }

  const std::string folder_;
  const std::string path_ = folder_ + "/model.gguf";
  const std::string pack_ = path_ + ".tidepack";
  std::vector<std::byte> bytes_;  // of the pack
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_TESTS_ENGINE_PUPPET_MODEL_H_
