#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/Device.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace lensbox {

// Open libraries whose ops register themselves with torch, and Lensbox's own op library if it is not among
// them: the file in the environment variable LENSBOX_OPS_LIBRARY, else the first liblensbox_ops.so beside the
// running program, in the library folder of its installation (../lib), or beside the shared library of the
// C++ runtime, else none. Returns all of them. They stay open for the life of the process. Thread-safe.
// Throws ArtifactError, with the linker's message, if a library cannot be opened, was built for another
// torch, or is a second one of Lensbox.
std::vector<std::filesystem::path> open_op_libraries(std::vector<std::filesystem::path> libraries);

// Return whether a library given to open_op_libraries holds an op such as "example::peaks"; Lensbox's own
// never counts. torch does not know which library registered an op, and another part of the program may have
// opened the library first. So this function looks for the names in the file, as a library spells them to
// torch.
bool is_of_named_library(const std::string& name);

// Throw ArtifactError unless every op of `schemas` ("lensbox::giou(Tensor boxes1, ...) -> Tensor") is
// registered with that schema (or one that only adds arguments with defaults) and has a kernel for `device`.
// `libraries` are the open ones, for the message.
void require_ops(const std::vector<std::string>& schemas, c10::Device device,
                 const std::vector<std::filesystem::path>& libraries);

// Call an op of the op library, which this library does not link, and return its results.
template <class... Arguments>
torch::jit::Stack call_ops(const std::string& name, Arguments&&... arguments) {
  const auto op = c10::Dispatcher::singleton().findSchema({name, ""});
  TORCH_CHECK(op, "the op ", name, " is not registered: load a newer op library");
  torch::jit::Stack stack{c10::IValue(std::forward<Arguments>(arguments))...};
  // An op takes as many values off the stack as it declares, whether they are there or not.
  const size_t declared = op->schema().arguments().size();
  TORCH_CHECK(declared == stack.size(), "the op ", name, " takes ", declared, " arguments, got ",
              stack.size(), ": load an op library of the same version as this program");
  op->callBoxed(stack);
  return stack;
}

// Call an op that has one result.
template <class... Arguments>
c10::IValue call_op(const std::string& name, Arguments&&... arguments) {
  return call_ops(name, std::forward<Arguments>(arguments)...).back();
}

}  // namespace lensbox
