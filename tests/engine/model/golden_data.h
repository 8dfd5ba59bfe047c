// Reads the reference data of tests/golden/, and runs models on it.
#ifndef TIDEPOOL_TESTS_ENGINE_MODEL_GOLDEN_DATA_H_
#define TIDEPOOL_TESTS_ENGINE_MODEL_GOLDEN_DATA_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "engine/checkpoint/weight_store.h"
#include "engine/evaluation/logits.h"
#include "engine/model/contiguous_kv.h"
#include "engine/model/transformer.h"
#include "kernels/backend.h"
#include "kernels/device.h"
#include "nlohmann/json.hpp"
#include "tests/engine/model/test_backend.h"

namespace tidepool::engine {

// A whole array, in C order. Reading it ends the process if the file is missing or has another
// type.
template <typename T>
struct NpyArray {
  std::vector<int64_t> shape;
  std::vector<T> values;

  absl::Span<const T> Row(int64_t row) const {
    const int64_t cols = shape.back();
    return absl::MakeConstSpan(values).subspan(row * cols, cols);
  }
};
// Reads arrays of float ("<f4"), double ("<f8") and int32_t ("<i4").
template <typename T>
NpyArray<T> ReadNpy(const std::string& path);

nlohmann::json ReadJson(const std::string& path);

// A model with all objects that it depends on.
struct LoadedModel {
  std::unique_ptr<kernels::KernelBackend> backend;
  std::unique_ptr<WeightStore> store;
  std::unique_ptr<TransformerModel> model;
};

struct RunOptions {
  kernels::Precision precision = kernels::Precision::kExact;
  kernels::DType kv_dtype = kernels::DType::kF32;
  kernels::Isa isa = kernels::Isa::kBest;
  int threads = 1;
  TestBackend backend = TestBackend::kFromEnvironment;
};

// Ends the process with the error if the file cannot be loaded.
LoadedModel Load(const std::string& path, const RunOptions& options);

// Returns the logits after every token: [tokens * vocab_size].
std::vector<float> AllLogits(TransformerModel* model, absl::Span<const int32_t> ids,
                             int64_t chunk_rows);

// Makes all numbers in this part of the model's memory NaN, whatever their type.
void FillWithNans(const Model& model, absl::Span<std::byte> memory);

// Absolute errors.
struct Difference {
  double most = 0;
  double mean = 0;
};
Difference Compare(const std::vector<float>& ours, const std::vector<float>& truth);

// Greedy generation of one sequence, which continues with each call.
class GreedyRun {
 public:
  // `slots` limits the sequence's length.
  GreedyRun(TransformerModel* model, int64_t slots);

  // Adds `ids` to the sequence and returns the best next token.
  int32_t Next(const std::vector<int32_t>& ids);

 private:
  TransformerModel* const model_;
  ContiguousKv kv_;
  kernels::Arena workspace_;
  const int64_t slots_;
  int64_t slots_used_ = 0;
};

// Path of the real model from the test rule. Ends the process if there is none.
std::string RealModelPath();

}  // namespace tidepool::engine

#endif  // TIDEPOOL_TESTS_ENGINE_MODEL_GOLDEN_DATA_H_
