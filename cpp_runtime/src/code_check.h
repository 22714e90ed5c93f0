#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lensbox {

// What TorchScript source does that no detector needs, judged by the names in it alone, before torch compiles
// or runs it: nothing, or a sentence with the line and the op. The lists of names are those of runtime/, the
// rules are in docs/artifact.md. declared_ops: the schemas that lensbox.json lists; they may be called,
// unless they lie in a namespace of torch's own.
std::optional<std::string> code_fault(std::string_view source, const std::vector<std::string>& declared_ops);

}  // namespace lensbox
