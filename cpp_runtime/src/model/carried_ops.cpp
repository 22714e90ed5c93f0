#include "model/carried_ops.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <lensbox/error.h>
#include <torch/version.h>

#include <algorithm>
#include <system_error>

#include "file/errors.h"
#include "file/files.h"
#include "file/seal.h"
#include "model/machine.h"
#include "model/op_library.h"

namespace lensbox {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const fs::path& artifact, const CarriedLibrary& library, const std::string& reason) {
  fail_artifact(artifact, "carries " + library.name + reason);
}

const std::string& checked(const fs::path& artifact, const CarriedLibrary& library,
                           const std::map<std::string, std::string>& contents) {
  const auto found = contents.find(library.name);
  if (found == contents.end()) fail(artifact, library, ", but holds no entry extra/ops/" + library.name);
  const std::string hash = sha256(found->second);
  if (hash != library.sha256) {
    fail(artifact, library, " with SHA-256 " + library.sha256 + ", but its bytes have " + hash);
  }
  if (library.platform != this_platform()) {
    fail(artifact, library, ", built for " + library.platform + "; this machine is " + this_platform());
  }
  if (minor_version(library.torch_version) != minor_version(TORCH_VERSION)) {
    fail(artifact, library,
         ", built for torch " + library.torch_version + "; this program has " +
             std::string(kTorchDescription) + ", and C++ interfaces change between minor versions");
  }
  return found->second;
}

void open_library(const fs::path& artifact, const CarriedLibrary& library, const std::string& content) {
  try {
    // The linker needs the file no longer than while it opens it.
    const PrivateFolder folder;
    const fs::path file = folder.path() / library.name;
    write_private_file(file, content);
    if (const std::string fault = open_op_library(file, content); !fault.empty()) {
      fail(artifact, library, ", which cannot be opened: " + fault);
    }
  } catch (const std::system_error& error) {
    fail(artifact, library, std::string(", which cannot be written to a temporary file: ") + error.what());
  }
}

// Return the names of the ops that another library has registered in this process, with commas.
std::string registered_names(const std::vector<std::string>& schemas) {
  const std::vector<c10::OperatorName> names = c10::Dispatcher::singleton().getAllOpNames();
  std::vector<std::string> registered;
  for (const std::string& schema : schemas) {
    const std::string name(op_name(schema));
    if (name.starts_with("lensbox::")) continue;
    if (std::ranges::find(names, name, &c10::OperatorName::name) != names.end()) registered.push_back(name);
  }
  return joined(registered);
}

}  // namespace

void open_carried_libraries(const fs::path& artifact, const std::vector<CarriedLibrary>& libraries,
                            const std::map<std::string, std::string>& contents,
                            const std::vector<std::string>& schemas) {
  const auto is_open = [](const CarriedLibrary& library) { return is_op_library_open(library.sha256); };
  if (!libraries.empty() && std::ranges::none_of(libraries, is_open)) {
    if (const std::string names = registered_names(schemas); !names.empty()) {
      fail(artifact, libraries.front(),
           ", but another library with another SHA-256 has registered " + names +
               " in this process: load the artifact in a process of its own");
    }
  }
  for (const CarriedLibrary& library : libraries) {
    const std::string& content = checked(artifact, library, contents);
    if (!is_open(library)) open_library(artifact, library, content);
  }
}

}  // namespace lensbox
