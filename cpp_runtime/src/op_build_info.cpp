#include "op_build_info.h"

#include <fstream>
#include <iterator>
#include <string_view>

namespace lensbox {

std::optional<OpBuildInfo> read_op_build_info(const std::filesystem::path& library) {
  std::ifstream stream(library, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  const size_t begin = bytes.find("lensbox-build version=");
  if (begin == std::string::npos) return std::nullopt;

  OpBuildInfo info;
  info.record = bytes.c_str() + begin;  // it ends with a zero byte
  constexpr std::string_view kTorch = " torch=";
  const size_t torch = info.record.find(kTorch);
  if (torch == std::string::npos) return std::nullopt;
  const size_t version = torch + kTorch.size();
  info.torch_version = info.record.substr(version, info.record.find(' ', version) - version);
  return info;
}

std::string minor_version(const std::string& version) {
  return version.substr(0, version.find('.', version.find('.') + 1));
}

}  // namespace lensbox
