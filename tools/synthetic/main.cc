// The binary behind tools/make_synthetic.
#include <cstdint>
#include <cstdio>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/available_cpus.h"
#include "tools/synthetic/checkpoint.h"
#include "tools/synthetic/shape.h"

namespace tidepool::tools {
namespace {

constexpr char kUsage[] =
    "usage: make_synthetic --shape NAME --type TYPE --out FILE [--layers N] [--seed N]\n"
    "                      [--threads N] [--force]";

struct Arguments {
  std::string shape;
  std::string type;
  std::string out;
  SyntheticOptions options;
};

std::string ShapeNames() {
  std::string names;
  for (const Shape& shape : Shapes())
    absl::StrAppend(&names, names.empty() ? "" : ", ", shape.name);
  return names;
}

template <typename T>
absl::Status ReadNumber(const std::string& flag, const std::string& text, int64_t least, T* value) {
  int64_t number = 0;
  if (!absl::SimpleAtoi(text, &number) || number < least || number > (1 << 30)) {
    return absl::InvalidArgumentError(absl::StrCat(flag, " needs a number of at least ", least));
  }
  *value = static_cast<T>(number);
  return absl::OkStatus();
}

absl::Status Apply(const std::string& flag, const std::string& value, Arguments* arguments) {
  SyntheticOptions& options = arguments->options;
  if (flag == "--shape" || flag == "--dense" || flag == "--moe") {
    arguments->shape = value;
  } else if (flag == "--type") {
    arguments->type = value;
  } else if (flag == "--out") {
    arguments->out = value;
  } else if (flag == "--layers") {
    return ReadNumber(flag, value, 1, &options.layers);
  } else if (flag == "--seed") {
    return ReadNumber(flag, value, 0, &options.seed);
  } else if (flag == "--threads") {
    return ReadNumber(flag, value, 1, &options.threads);
  } else {
    return absl::InvalidArgumentError(absl::StrCat("unknown argument ", flag, "; ", kUsage));
  }
  return absl::OkStatus();
}

absl::StatusOr<Arguments> Parse(int argc, char** argv) {
  Arguments arguments;
  arguments.options.threads = engine::AvailableCpus();
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--force") {
      arguments.options.existing = engine::ExistingFile::kReplace;
    } else if (i + 1 >= argc) {
      return absl::InvalidArgumentError(absl::StrCat(flag, " needs a value; ", kUsage));
    } else {
      const absl::Status status = Apply(flag, argv[++i], &arguments);
      if (!status.ok()) return status;
    }
  }
  if (FindShape(arguments.shape) == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("--shape: \"", arguments.shape, "\" is not one of ", ShapeNames()));
  }
  bool known = false;
  for (uint32_t id = 0; id < 64; ++id) {
    const engine::GgmlTypeInfo* info = engine::FindGgmlType(id);
    if (info == nullptr || !absl::EqualsIgnoreCase(info->name, arguments.type)) continue;
    arguments.options.type = info->type;
    known = true;
  }
  if (!known) {
    return absl::InvalidArgumentError(
        absl::StrCat("--type: \"", arguments.type, "\" is not a weight type such as Q4_K"));
  }
  if (arguments.out.empty()) return absl::InvalidArgumentError("--out FILE is missing");
  return arguments;
}

int Main(int argc, char** argv) {
  const absl::StatusOr<Arguments> arguments = Parse(argc, argv);
  absl::Status status = arguments.status();
  if (status.ok()) {
    const absl::StatusOr<uint64_t> bytes =
        WriteSynthetic(*FindShape(arguments->shape), arguments->out, arguments->options);
    if (bytes.ok()) {
      std::printf("%s: %s in %s, %.1f MiB\n", arguments->out.c_str(), arguments->shape.c_str(),
                  arguments->type.c_str(), static_cast<double>(*bytes) / (1 << 20));
      return 0;
    }
    status = bytes.status();
  }
  std::fprintf(stderr, "make_synthetic: %s\n", std::string(status.message()).c_str());
  return arguments.ok() ? 1 : 2;
}

}  // namespace
}  // namespace tidepool::tools

int main(int argc, char** argv) { return tidepool::tools::Main(argc, argv); }
