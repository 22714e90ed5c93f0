#pragma once

#include <string>

#include "file/seal.h"

// Return a zip archive without a comment with its seal, as artifact/seal.py does.
inline std::string sealed_zip(const std::string& archive) {
  const std::string content =
      archive.substr(0, archive.size() - 2) + std::string("\x4f\0", 2) + "lensbox.sha256=";
  return content + lensbox::sha256(content);
}

// Return a serialized ONNX model with its seal.
inline std::string sealed_onnx(const std::string& model) {
  const std::string content = model + "\x72\x52\x0a\x0elensbox.sha256\x12\x40";
  return content + lensbox::sha256(content);
}
