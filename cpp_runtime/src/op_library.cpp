#include <ATen/core/dispatch/Dispatcher.h>
#include <dlfcn.h>
#include <lensbox/error.h>
#include <lensbox/torch/op_library.h>
#include <torch/csrc/jit/frontend/function_schema_parser.h>
#include <torch/version.h>

#include <cstdlib>
#include <sstream>

#include "op_build_info.h"
#include "op_schema.h"
#include "shared_library_file.h"
#include "torch_error.h"
#include "torch_version.h"

namespace lensbox {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFileName = "liblensbox_ops.so";
constexpr const char* kEnvironmentVariable = "LENSBOX_OPS_LIBRARY";

std::string how_to_pass(const std::optional<fs::path>& library) {
  if (library) return "The op library loaded is " + library->string() + "; pass another with --ops FILE.";
  return std::string("No op library was given: pass --ops FILE (") + kFileName + "), or set " +
         kEnvironmentVariable + ", or put it beside the program or the library.";
}

// Where the op library is looked for: beside the program, in the library folder of its installation, and
// beside the shared library if this code lies in one.
std::vector<fs::path> op_library_folders() {
  std::vector<fs::path> folders;
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (!error) folders = {program.parent_path(), program.parent_path() / LENSBOX_LIBRARY_FOLDER};
  Dl_info code;
  if (dladdr(reinterpret_cast<const void*>(&find_op_library), &code) != 0 && code.dli_fname != nullptr) {
    const fs::path library = fs::canonical(code.dli_fname, error);
    if (!error) folders.push_back(library.parent_path());
  }
  return folders;
}

std::string to_string(const c10::FunctionSchema& schema) {
  std::ostringstream text;
  text << schema;
  return text.str();
}

[[noreturn]] void fail_to_load(const fs::path& library, const std::optional<OpBuildInfo>& info,
                               const std::string& reason) {
  throw ArtifactError("op library " + library.string() + ": " + reason +
                      "\n  it says of itself: " + (info ? info->record : "nothing") +
                      "\n  this program has:   " + std::string(kTorchDescription));
}

c10::FunctionSchema parse_schema(const std::string& text) {
  if (const auto fault = op_schema_fault(text)) {
    throw ArtifactError("the artifact lists an op schema that torch cannot read: it " + *fault + ", got '" +
                        text.substr(0, 80) + "'");
  }
  try {
    return torch::jit::parseSchema(text, /*allow_typevars=*/false);
  } catch (const std::exception& error) {
    throw ArtifactError("the artifact lists an op schema that torch cannot read, '" + text + "':\n" +
                        torch_message(error));
  }
}

}  // namespace

std::optional<fs::path> find_op_library(const std::optional<fs::path>& given) {
  if (given) return given;
  const char* const variable = std::getenv(kEnvironmentVariable);
  if (variable != nullptr && *variable != '\0') return fs::path(variable);
  std::error_code error;
  for (const fs::path& folder : op_library_folders()) {
    const fs::path library = folder / kFileName;
    if (fs::exists(library, error)) return library;
  }
  return std::nullopt;
}

void load_op_library(const fs::path& library) {
  std::error_code error;
  if (!fs::is_regular_file(library, error))
    throw ArtifactError("op library " + library.string() + ": no such file");
  const auto info = read_op_build_info(library);
  if (info && minor_version(info->torch_version) != minor_version(TORCH_VERSION)) {
    fail_to_load(library, info, "it was built for another version of torch");
  }
  if (const auto fault = open_shared_library(library)) fail_to_load(library, info, *fault);
}

void require_ops(const std::vector<std::string>& schemas, c10::Device device,
                 const std::optional<fs::path>& library) {
  const c10::DispatchKey key = device.is_cuda() ? c10::DispatchKey::CUDA : c10::DispatchKey::CPU;
  for (const std::string& text : schemas) {
    const c10::FunctionSchema wanted = parse_schema(text);
    const auto op = c10::Dispatcher::singleton().findSchema(wanted.operator_name());
    if (!op) {
      throw ArtifactError("the artifact needs the op " + wanted.name() + ", which is not registered. " +
                          how_to_pass(library));
    }
    // Not equality: a newer library may have added arguments with defaults.
    if (!op->schema().isBackwardCompatibleWith(wanted)) {
      throw ArtifactError("the op " + wanted.name() +
                          " has another schema than the artifact needs.\n  needed:     " + to_string(wanted) +
                          "\n  registered: " + to_string(op->schema()) + "\n" + how_to_pass(library));
    }
    if (!op->hasComputedKernelForDispatchKey(key)) {
      throw ArtifactError("the op " + wanted.name() + " has no kernel for device " + device.str() + ". " +
                          how_to_pass(library));
    }
  }
}

}  // namespace lensbox
