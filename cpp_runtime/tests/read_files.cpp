// Reads files that were damaged at random, for the tests that hold the runtime to its errors. Built with
// sanitizers
// (-DLENSBOX_SANITIZE=ON), it ends at the first access to memory that is not its own. Each line of stdin is
// one of
//
//   info <artifact>      checks an artifact, as `lensbox_runner info` does
//   load <artifact>      also loads it, and runs its self-test
//   photo <image>        reads an image for a small gray canvas, at a reduced size where it is large
//   image <image>        reads an image at full size, in its own colors
//   pickle <file>        checks a pickle, with the records data/0 of 64 bytes and data/1 of 8
//   code <file>          checks a TorchScript source, with no declared ops
//
// and is answered by one line: "read", or "refused: " and the message of an ArtifactError or InputError.
// Anything else ends the program.

#include <lensbox/error.h>
#include <lensbox/image_io.h>
#include <lensbox/torch/artifact.h>
#include <lensbox/torch/photo.h>
#include <lensbox/torch/self_test.h>

#include <algorithm>
#include <fstream>
#include <iostream>
#include <iterator>
#include <stdexcept>
#include <string>

#include "code_check.h"
#include "pickle_check.h"

namespace {

std::string bytes_of(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

void refuse_where(const std::optional<std::string>& fault) {
  if (fault) throw lensbox::ArtifactError(*fault);
}

std::optional<uint64_t> record_size(const std::string& name) {
  if (name == "data/0") return 64;
  if (name == "data/1") return 8;
  return std::nullopt;
}

void read(const std::string& how, const std::string& file) {
  if (how == "info") {
    lensbox::read_metadata(file);
  } else if (how == "load") {
    lensbox::run_self_test(lensbox::Artifact::load(file, c10::kCPU));
  } else if (how == "photo") {
    lensbox::read_photo(
        std::filesystem::path(file),
        {.canvas = lensbox::Canvas{.height = 24, .width = 32, .channels = 1, .fill = 0}, .reading = {}});
  } else if (how == "image") {
    lensbox::read_image(file);
  } else if (how == "pickle") {
    refuse_where(lensbox::pickle_fault(bytes_of(file), "data", record_size));
  } else if (how == "code") {
    refuse_where(lensbox::code_fault(bytes_of(file), {}));
  } else {
    throw std::invalid_argument("no such way to read a file: " + how);
  }
}

std::string refused(std::string message) {
  std::ranges::replace(message, '\n', ' ');
  return "refused: " + message;
}

std::string outcome(const std::string& line) {
  const size_t blank = line.find(' ');
  try {
    read(line.substr(0, blank), line.substr(blank + 1));
    return "read";
  } catch (const lensbox::ArtifactError& error) {
    return refused(error.what());
  } catch (const lensbox::InputError& error) {
    return refused(error.what());
  }
}

}  // namespace

int main() {
  std::string line;
  while (std::getline(std::cin, line)) {
    std::cout << outcome(line) << std::endl;
  }
}
