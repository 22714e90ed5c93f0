#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace lensbox {

// The size in bytes of a record of the archive, such as that of "constants/0"; nothing if there is none.
using RecordSize = std::function<std::optional<uint64_t>(const std::string& name)>;

// What in a pickle torch must not rely on: nothing, or a sentence. libtorch's unpickler is careful of what
// runs, but takes a tensor's memory to be as long as the pickle says, and stack, memo and nesting as it finds
// them. So each pickle is walked first, without executing anything, with the few opcodes and names that torch
// writes (the rules are in docs/artifact.md). `folder` is where the records of its tensors are, "constants"
// or "data".
std::optional<std::string> pickle_fault(std::string_view pickle, const std::string& folder,
                                        const RecordSize& record_size);

}  // namespace lensbox
