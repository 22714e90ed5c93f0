#pragma once

#include <lensbox/trust.h>

#include <filesystem>
#include <optional>
#include <string>

namespace lensbox {

// How Detector::load loads an artifact.
struct LoadOptions {
  // "cpu", "cuda" (the first GPU), "cuda:N", or "auto" (the first GPU if there is one, else the CPU).
  std::string device = "cpu";
  // The op library. None: what the environment variable LENSBOX_OPS_LIBRARY names, else liblensbox_ops.so
  // beside the program, in the library folder of the program's installation, or beside this library, else
  // none.
  std::optional<std::filesystem::path> op_library = std::nullopt;
  Trust trust = Trust::kCheckCode;
  // A PEM file with an Ed25519 key. Then the artifact must be signed by its owner, in <artifact>.sig, or is
  // refused before anything else of it is looked at.
  std::optional<std::filesystem::path> public_key = std::nullopt;
};

}  // namespace lensbox
