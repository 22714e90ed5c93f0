// Reads files as the library does, for the tests that compare it with Python:
//
//   read_files artifacts {<file> <public key, or "">}...
//   read_files <folder> exif|stored <canvas width> <height> <channels> <oversampling> <fit> <image file>...
//
// Prints an array with an object for each file: {"error"}, or for artifacts {"kind": 0..3, "name"}, for
// images
// {"shape": [h, w, C], "size": [width, height], "window"}, whose pixels are written to <folder>/<index>.

#include <ATen/core/Tensor.h>
#include <lensbox/detector.h>
#include <lensbox/torch/tensors.h>

#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace {

using Json = nlohmann::ordered_json;

Json read(const std::string& file, const lensbox::Reading& reading, const std::string& output) {
  try {
    const lensbox::Photo photo = lensbox::read_photo(std::filesystem::path(file), reading);
    const at::Tensor pixels = photo.pixels.permute({1, 2, 0}).contiguous();
    std::ofstream(output, std::ios::binary)
        .write(reinterpret_cast<const char*>(pixels.const_data_ptr()), pixels.numel());
    return {{"shape", pixels.sizes().vec()}, {"size", {photo.width, photo.height}}, {"window", photo.window}};
  } catch (const lensbox::InputError& error) {
    return {{"error", error.what()}};
  }
}

Json read_artifact(const std::string& file, const std::string& key) {
  try {
    const lensbox::Metadata metadata =
        lensbox::read_metadata(file, key.empty() ? std::nullopt : std::optional<std::filesystem::path>(key));
    return {{"kind", metadata.file_kind}, {"name", metadata.name}};
  } catch (const lensbox::ArtifactError& error) {
    return {{"error", error.what()}};
  }
}

Json read_artifacts(const std::vector<std::string>& words) {
  Json outcomes = Json::array();
  for (size_t i = 1; i + 1 < words.size(); i += 2) {
    outcomes.push_back(read_artifact(words[i], words[i + 1]));
  }
  return outcomes;
}

Json read_images(const std::vector<std::string>& words) {
  lensbox::Reading reading{.canvas = {}};
  reading.orientation = words.at(1) == "exif" ? lensbox::Orientation::kExif : lensbox::Orientation::kStored;
  reading.canvas = {.height = std::stoi(words.at(3)),
                    .width = std::stoi(words.at(2)),
                    .channels = std::stoi(words.at(4)),
                    .fill = 0,
                    .fit = words.at(6)};
  reading.jpeg_oversampling = std::stoi(words.at(5));
  Json outcomes = Json::array();
  for (size_t i = 7; i < words.size(); ++i) {
    outcomes.push_back(read(words[i], reading, words[0] + "/" + std::to_string(i - 7)));
  }
  return outcomes;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  const Json outcomes = words.at(0) == "artifacts" ? read_artifacts(words) : read_images(words);
  std::cout << outcomes.dump(-1, ' ', false, Json::error_handler_t::replace) << '\n';
}
