#include "compiled_for.h"

#include <lensbox/error.h>
#include <torch/version.h>

#include <fstream>
#include <iterator>
#include <set>
#include <sstream>

#include "carried_ops.h"
#include "gpu_architecture.h"
#include "op_build_info.h"
#include "torch_version.h"

namespace lensbox {
namespace {

namespace fs = std::filesystem;

constexpr const char* kAgain = ": export the detector again, on a machine like this one";

std::string read_cpuinfo() {
  std::ifstream stream("/proc/cpuinfo");
  return {std::istreambuf_iterator<char>(stream), {}};
}

// The words of the first line that begins with `name` and a colon.
std::set<std::string> words_of_line(std::string_view text, const std::string& name) {
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    const size_t colon = line.find(':');
    if (!line.starts_with(name) || colon == std::string::npos) continue;
    std::istringstream words(line.substr(colon + 1));
    return {std::istream_iterator<std::string>(words), {}};
  }
  return {};
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) {
    text += (text.empty() ? "" : ", ") + name;
  }
  return text;
}

}  // namespace

std::vector<std::string> lacking_features(const std::vector<std::string>& needed, std::string_view cpuinfo) {
  std::set<std::string> present = words_of_line(cpuinfo, "flags");    // x86-64
  if (present.empty()) present = words_of_line(cpuinfo, "Features");  // ARM
  std::vector<std::string> lacking;
  for (const std::string& feature : needed) {
    if (!present.contains(feature)) lacking.push_back(feature);
  }
  return lacking;
}

void require_machine(const fs::path& artifact, const Compiled& compiled, c10::Device device) {
  const std::string made = "artifact " + artifact.string() + ": was compiled for ";
  if (minor_version(compiled.torch_version) != minor_version(TORCH_VERSION)) {
    throw ArtifactError(made + "torch " + compiled.torch_version + "; this program has " + kTorchDescription +
                        ", and C++ interfaces change between minor versions" + kAgain);
  }
  if ((compiled.device == "cuda") != device.is_cuda()) {
    throw DeviceError("device must be " + compiled.device + ", for which " + artifact.string() +
                      " was compiled, got " + device.str());
  }
  if (compiled.platform != this_platform()) {
    throw ArtifactError(made + compiled.platform + "; this machine is " + this_platform() + kAgain);
  }
  if (const auto lacking = lacking_features(compiled.cpu_features, read_cpuinfo()); !lacking.empty()) {
    throw ArtifactError(made + "a processor with " + joined(lacking) + ", which this one lacks" + kAgain);
  }
  if (device.is_cuda() && gpu_architecture(device) != compiled.gpu_architecture) {
    throw ArtifactError(made + "a GPU of architecture " + compiled.gpu_architecture + "; that of " +
                        device.str() + " is " + gpu_architecture(device) + kAgain);
  }
}

}  // namespace lensbox
