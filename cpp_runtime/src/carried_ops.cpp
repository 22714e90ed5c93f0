#include "carried_ops.h"

#include <ATen/core/interned_strings.h>
#include <lensbox/error.h>
#include <sys/utsname.h>
#include <torch/csrc/jit/runtime/operator.h>
#include <torch/version.h>

#include <algorithm>
#include <mutex>
#include <set>
#include <system_error>

#include "op_build_info.h"
#include "op_schema.h"
#include "private_file.h"
#include "sha256.h"
#include "shared_library_file.h"
#include "torch_version.h"

namespace lensbox {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const fs::path& artifact, const CarriedLibrary& library, const std::string& reason) {
  throw ArtifactError("artifact " + artifact.string() + ": carries " + library.name + reason);
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
    if (const auto fault = open_shared_library(file)) {
      fail(artifact, library, ", which cannot be opened: " + *fault);
    }
  } catch (const std::system_error& error) {
    fail(artifact, library, std::string(", which cannot be written to a temporary file: ") + error.what());
  }
}

// Whether the process has an operator of that name, with whatever schema.
bool is_registered(const std::string& schema) {
  const std::string name(op_name(schema));
  return !torch::jit::getAllOperatorsFor(c10::Symbol::fromQualString(name)).empty();
}

// Another library of the same operators, such as an earlier version, must not be followed by this one.
void refuse_half_registered(const fs::path& artifact, const std::vector<CarriedLibrary>& libraries,
                            const std::vector<std::string>& schemas) {
  std::string there;
  std::string missing;
  for (const std::string& schema : schemas) {
    const std::string name(op_name(schema));
    if (name.starts_with("lensbox::")) continue;
    std::string& names = is_registered(schema) ? there : missing;
    names += (names.empty() ? "" : ", ") + name;
  }
  if (there.empty() || missing.empty()) return;
  fail(artifact, libraries.front(),
       ", but another library has registered " + there + " in this process, without " + missing +
           ": load the artifact in a process of its own");
}

}  // namespace

std::string this_platform() {
  utsname names{};
  uname(&names);
  std::string platform = std::string(names.sysname) + "-" + names.machine;
  for (char& c : platform) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return platform;
}

void open_carried_libraries(const fs::path& artifact, const std::vector<CarriedLibrary>& libraries,
                            const std::map<std::string, std::string>& contents,
                            const std::vector<std::string>& schemas) {
  static std::mutex mutex;
  static std::set<std::string> opened;  // hashes; to register an operator twice ends the process
  const std::lock_guard lock(mutex);
  const auto is_open = [&](const CarriedLibrary& library) { return opened.contains(library.sha256); };
  if (!libraries.empty() && std::ranges::none_of(libraries, is_open))
    refuse_half_registered(artifact, libraries, schemas);
  for (const CarriedLibrary& library : libraries) {
    const std::string& content = checked(artifact, library, contents);
    if (opened.contains(library.sha256) || std::ranges::all_of(schemas, is_registered)) continue;
    open_library(artifact, library, content);
    opened.insert(library.sha256);
  }
}

}  // namespace lensbox
