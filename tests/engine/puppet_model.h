// PuppetModel: a whole model whose reads of experts the test controls. On a device, experts are in
// its memory, in the host's memory below it, and in the file.
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
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "engine/checkpoint/ggml_type.h"
#include "engine/checkpoint/gguf.h"
#include "engine/checkpoint/weight_store.h"
#include "engine/loading/tiered_model.h"
#include "engine/model/model_config.h"
#include "engine/model/transformer.h"
#include "kernels/base/check.h"
#include "moe/device/device_experts.h"
#include "moe/expert_source.h"
#include "moe/offload_control.h"
#include "moe/tiered_experts.h"
#include "tests/engine/model/test_backend.h"
#include "tests/moe/puppet_reader.h"
#include "tools/synthetic/checkpoint.h"
#include "tools/synthetic/shape.h"

namespace tidepool::engine {

// The model with all objects that it depends on.
struct PuppetModel {
  std::unique_ptr<kernels::KernelBackend> backend;
  std::unique_ptr<kernels::KernelBackend> host_backend;  // null if the model runs on the CPU
  std::unique_ptr<WeightStore> store;
  moe::PuppetReader* puppet = nullptr;
  std::unique_ptr<TransformerModel> model;
  std::function<absl::Status()> load_residents;

  moe::OffloadControl* experts() const { return model->offload_control(); }
};

// A random checkpoint in its own folder, and models that use it. Outlives the models.
class PuppetModels {
 public:
  // Empties the folder.
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
    TestBackend backend = TestBackend::kFromEnvironment;
    int64_t host_slots = 0;  // on a device: slots of the host's memory; 0: as many as `tiered` has
  };
  // Returns a model. The first call writes the pack, and the experts' records are read from memory.
  // Fills in the fields of `tiered` that depend on the model. The slots in `tiered` are for the
  // memory in which the model computes.
  PuppetModel Make(moe::TieredOptions tiered, const MakeOptions& options) {
    PuppetModel made;
    made.backend = MakeTestBackend({.backend = options.backend, .threads = options.threads});
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
    const moe::DeviceOptions device = {.top_k = tiered.top_k,
                                       .slots = tiered.slots,
                                       .staging = tiered.staging,
                                       .policy = tiered.policy,
                                       .prefetch = tiered.prefetch,
                                       .layer_numbers = tiered.layer_numbers,
                                       .clock = tiered.clock};
    const bool on_device = !made.backend->memory()->on_host();
    if (on_device) tiered.pin = made.backend.get();
    if (on_device && options.host_slots > 0) tiered.slots = options.host_slots;
    auto host =
        moe::TieredExperts::Create(*std::move(records), std::move(reader), std::move(tiered));
    CHECK_OK(host.status());
    if (!on_device) {
      made.load_residents = [experts = host->get()] {
        experts->LoadResidents({});
        return absl::OkStatus();
      };
      Finish(config, *std::move(host), &made);
      return made;
    }
    made.host_backend = MakeTestBackend({.backend = TestBackend::kCpu, .threads = options.threads});
    auto experts = moe::DeviceExperts::Create(made.backend.get(), *std::move(host), device);
    CHECK_OK(experts.status());
    made.load_residents = [experts = experts->get()] { return experts->LoadResidents({}); };
    Finish(config, *std::move(experts), &made);
    return made;
  }

 private:
  static void Finish(const ModelConfig& config, std::unique_ptr<moe::ExpertSource> experts,
                     PuppetModel* made) {
    auto model = TransformerModel::Create(
        config, made->store.get(), made->backend.get(),
        {.experts = std::move(experts), .host_backend = made->host_backend.get()});
    CHECK_OK(model.status());
    made->model = *std::move(model);
  }

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
