#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "kernels/math.h"
#include "tests/kernels/op_cases.h"
#include "tests/kernels/operands.h"
#include "tests/kernels/test_data.h"

namespace tidepool::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

OpCase ZeroCase(int64_t rows, int64_t cols) {
  const auto run = [=](KernelBackend& backend) {
    const MatrixOperand out(backend, Noise(rows + cols).Floats(rows * (cols + 3)), rows, cols,
                            cols + 3);
    backend.Zero(out.view());
    return OpResult{out.Read(), {}};
  };
  return {absl::StrCat("Zero ", rows, "x", cols), run, Relative(0)};
}

// Gathers random rows, some of them several times.
OpCase GatherRowsCase(int64_t rows, int64_t cols) {
  const auto run = [=](KernelBackend& backend) {
    Noise noise(rows + cols);
    constexpr int64_t kSources = 13;
    const MatrixOperand x(backend, noise.Floats(kSources * (cols + 3)), kSources, cols, cols + 3);
    const MatrixOperand out(backend, noise.Floats(rows * (cols + 1)), rows, cols, cols + 1);
    std::vector<int64_t> from(rows);
    for (int64_t& row : from) row = noise.Below(kSources);
    backend.GatherRows(x.view(), from, out.view());
    return OpResult{out.Read(), {}};
  };
  return {absl::StrCat("GatherRows ", rows, "x", cols), run, Relative(0)};
}

OpCase CopyHeadsCase(int64_t rows, const HeadCopy& copy) {
  const auto run = [=](KernelBackend& backend) {
    Noise noise(rows + copy.cols);
    const int64_t from_cols = int64_t{copy.heads} * copy.from_dim;
    const int64_t to_cols = int64_t{copy.heads} * copy.to_dim;
    const MatrixOperand from(backend, noise.Floats(rows * (from_cols + 2)), rows, from_cols,
                             from_cols + 2);
    const MatrixOperand to(backend, noise.Floats(rows * (to_cols + 1)), rows, to_cols, to_cols + 1);
    backend.CopyHeads(copy, from.view(), to.view());
    return OpResult{to.Read(), {}};
  };
  return {absl::StrCat("CopyHeads ", rows, " rows, ", copy.heads, " heads, ", copy.cols, " of ",
                       copy.from_dim, " to ", copy.to_dim),
          run, Relative(0)};
}

// Copies some bytes from and to odd addresses.
OpCase CopyWithinCase(int64_t bytes) {
  const auto run = [=](KernelBackend& backend) {
    std::vector<std::byte> values(2 * bytes + 8);
    Noise noise(bytes);
    for (std::byte& value : values) value = static_cast<std::byte>(noise.Next());
    const Operand<std::byte> memory(backend, values);
    backend.CopyWithin(memory.data() + 1, memory.data() + bytes + 4, static_cast<size_t>(bytes));
    OpResult result;
    for (const std::byte value : memory.Read()) result.values.push_back(static_cast<float>(value));
    return result;
  };
  return {absl::StrCat("CopyWithin ", bytes), run, Relative(0)};
}

// Copies run beside ops. Ops read and write the targets before the copies begin and after they end.
OpCase BeginCopyInCase(int64_t floats) {
  const auto run = [=](KernelBackend& backend) {
    constexpr int kCopies = 5;
    Noise noise(floats);
    const PinnedFloats source(backend, noise.Floats(kCopies * floats));
    const MatrixOperand slots(backend, noise.Floats(2 * floats), 2, floats);
    const MatrixOperand out(backend, std::vector<float>(2 * floats), 2, floats);
    std::vector<CopyTicket> copies;
    for (int i = 0; i < kCopies; ++i) {
      const MatrixView slot = slots.view().RowRange(i % 2, 1);
      backend.AddScaled(slot, static_cast<float>(i + 1), out.view().RowRange(i % 2, 1));
      copies.push_back(backend.BeginCopyIn(source.Bytes(i * floats, floats),
                                           reinterpret_cast<std::byte*>(slot.data),
                                           backend.MarkOps()));
      backend.Scale(out.view(), 0.5f);
      backend.AwaitCopy(copies.back());
    }
    backend.Add(slots.view(), out.view());
    const OpResult result = {Joined(out.Read(), slots.Read()), {}};
    for (const CopyTicket copy : copies) {
      absl::StatusOr<std::optional<absl::Duration>> time = std::nullopt;
      while (time.ok() && !time->has_value()) time = backend.CopyTime(copy);
      EXPECT_TRUE(time.ok()) << time.status();
    }
    return result;
  };
  return {absl::StrCat("BeginCopyIn ", floats), run, Relative(0)};
}

// Returns rows for ScanRows. In each row, something else is found, or at another place.
std::vector<float> ScannedRows(int64_t rows, int64_t cols, float limit) {
  std::vector<float> values = Noise(rows * cols).Floats(rows * cols);
  const float below = std::nextafter(limit, 0.0f);
  for (int64_t i = 0; i < rows; ++i) {
    float* row = values.data() + i * cols;
    for (int64_t k = 0; k < cols; ++k) row[k] *= std::fmin(below, 1.0f);
    float* const last = row + cols - 1;
    float* const middle = row + cols / 2;
    switch (i % 12) {
      case 0:
        break;
      case 1:
        std::fill_n(row, cols, 0.0f);
        break;
      case 2:
        std::fill_n(row, cols, -0.0f);
        break;
      case 3:
        std::fill_n(row, cols, 0.0f);
        *last = -std::numeric_limits<float>::denorm_min();
        break;
      case 4:
        *middle = NAN;
        break;
      case 5:
        *last = -NAN;
        break;
      case 6:
        *last = kInfinity;
        *middle = -kInfinity;
        break;
      case 7:
        *last = -limit;
        break;
      case 8:
        *last = below;
        *middle = -below;
        break;
      case 9:
        *row = limit;
        *last = NAN;
        break;
      case 10:
        *middle = FloatFromBits(0x7f800001);  // a signalling NaN with a payload
        break;
      case 11:
        std::fill_n(row, cols, 0.0f);
        *last = NAN;
        break;
    }
  }
  return values;
}

OpCase ScanRowsCase(int64_t rows, int64_t cols, float limit) {
  const auto run = [=](KernelBackend& backend) {
    std::vector<float> values = ScannedRows(rows, cols, limit);
    // The NaNs between the rows must not be found.
    for (int64_t i = rows; i > 0; --i) values.insert(values.begin() + i * cols, NAN);
    const MatrixOperand x(backend, values, rows, cols, cols + 1);
    const Operand<RowScan> out(backend, std::vector<RowScan>(rows, RowScan{77, 77, true}));
    backend.ScanRows(x.view(), limit, out.data());
    OpResult result;
    for (const RowScan& scan : out.Read()) {
      const uint32_t bits = FloatBits(scan.large);
      result.values.insert(result.values.end(),
                           {static_cast<float>(scan.first_large), static_cast<float>(bits >> 16),
                            static_cast<float>(bits & 0xffff), scan.all_zero ? 1.0f : 0.0f});
    }
    return result;
  };
  return {absl::StrCat("ScanRows ", rows, "x", cols, " limit ", limit), run, Relative(0)};
}

}  // namespace

void AddCopyCases(Precision, std::vector<OpCase>* cases) {
  for (const int64_t cols : {1, 7, 64, 577}) {
    for (const int64_t rows : {0, 1, 19}) {
      cases->push_back(ZeroCase(rows, cols));
      cases->push_back(GatherRowsCase(rows, cols));
    }
    for (const float limit : {kInfinity, 65520.0f, 0x1p-140f}) {
      for (const int64_t rows : {0, 1, 36}) cases->push_back(ScanRowsCase(rows, cols, limit));
    }
  }
  for (const int64_t rows : {1, 21}) {
    cases->push_back(CopyHeadsCase(
        rows, {.heads = 3, .cols = 5, .from_dim = 9, .from_first = 4, .to_dim = 7, .to_first = 2}));
    cases->push_back(CopyHeadsCase(rows, {.heads = 16, .cols = 64, .from_dim = 192, .to_dim = 64}));
    cases->push_back(CopyHeadsCase(
        rows,
        {.heads = 2, .cols = 32, .from_dim = 96, .from_first = 64, .to_dim = 160, .to_first = 1}));
    cases->push_back(CopyHeadsCase(rows, {.heads = 1, .cols = 1, .from_dim = 1, .to_dim = 1}));
  }
  for (const int64_t bytes : {1, 100, 70001}) cases->push_back(CopyWithinCase(bytes));
  for (const int64_t floats : {1, 33, 20000}) cases->push_back(BeginCopyInCase(floats));
}

}  // namespace tidepool::kernels
