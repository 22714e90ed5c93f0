#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "zip_archive.h"

namespace lensbox {

// What the code of an artifact does that no detector needs, judged by the names in it alone, before torch
// compiles or runs it: nothing, or a sentence with the entry, the line and the op. The lists of names and the
// rules are those of runtime/ (docs/artifact.md).
//
// folder: what the names of all entries begin with, such as "detector/". declared_ops: the schemas that
// lensbox.json lists; they may be called, unless they lie in a namespace of torch's own.
std::optional<std::string> code_fault(const ZipArchive& archive, std::string_view folder,
                                      const std::vector<std::string>& declared_ops);

// The same of one file of code, without the entry.
std::optional<std::string> source_fault(std::string_view source,
                                        const std::vector<std::string>& declared_ops);

}  // namespace lensbox
