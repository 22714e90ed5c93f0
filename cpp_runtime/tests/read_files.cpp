// Reads files as the library does, for the tests that compare it with Python:
//
//   read_files artifacts {<file> <public key, or "">}...
//   read_files <folder> exif|stored <canvas width> <height> <channels> <oversampling> <fit> <image file>...
//
// Prints an array with an object for each file: {"error"}, or for artifacts {"kind": 0..3, "name"}, for
// images {"shape": [h, w, C], "size": [width, height], "window"}, whose pixels are written to
// <folder>/<index>, and whose canvas, [c, h, w], to
// <folder>/<index>.canvas if it has more than one column.

#include <lensbox/detector.h>

#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "backends/canvases.h"
#include "detect/steps.h"

namespace {

using Json = nlohmann::ordered_json;

Json read_artifact(const std::string& file, const std::string& key) {
  const lensbox::Metadata metadata =
      lensbox::read_metadata(file, key.empty() ? std::nullopt : std::optional<std::filesystem::path>(key));
  return {{"kind", metadata.file_kind}, {"name", metadata.name}};
}

// Return a photograph as the library reads it; write its pixels, and the canvas that they are fitted to.
Json read_image(const std::string& file, const lensbox::Reading& reading, const std::string& output) {
  const lensbox::DecodedPhoto photo = lensbox::decode_file(file, reading);
  const auto& [memory, data, width, height, channels, stride] = photo.pixels;
  std::ofstream pixels(output, std::ios::binary);
  for (int64_t y = 0; y < height; ++y) {
    pixels.write(reinterpret_cast<const char*>(photo.pixels.row(y)), width * channels);
  }
  if (reading.canvas.width > 1) {
    const auto fitted = lensbox::fit_photos({&photo}, reading.canvas, /*threads=*/1);
    std::ofstream(output + ".canvas", std::ios::binary)
        .write(reinterpret_cast<const char*>(fitted.canvases.data()), std::ssize(fitted.canvases));
  }
  return {
      {"shape", {height, width, channels}}, {"size", {photo.width, photo.height}}, {"window", photo.window}};
}

lensbox::Reading reading_of(const std::vector<std::string>& words) {
  using lensbox::Orientation;
  const lensbox::Canvas canvas{.height = std::stoi(words.at(3)),
                               .width = std::stoi(words.at(2)),
                               .channels = std::stoi(words.at(4)),
                               .fill = 0,
                               .fit = words.at(6)};
  return {canvas, words.at(1) == "exif" ? Orientation::kExif : Orientation::kStored, std::stoi(words.at(5))};
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  const bool has_artifacts = words.at(0) == "artifacts";
  Json outcomes = Json::array();
  for (size_t i = has_artifacts ? 1 : 7; i < words.size(); i += has_artifacts ? 2 : 1) {
    try {
      outcomes.push_back(
          has_artifacts ? read_artifact(words[i], words.at(i + 1))
                        : read_image(words[i], reading_of(words), words[0] + "/" + std::to_string(i - 7)));
    } catch (const lensbox::Error& error) {
      outcomes.push_back({{"error", error.what()}});
    }
  }
  std::cout << outcomes.dump(-1, ' ', false, Json::error_handler_t::replace) << '\n';
}
