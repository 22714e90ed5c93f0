// Reads image files as read_photo does, for the tests that compare them with other runtimes' to the byte:
//
//   photo_pixels <folder> exif|stored <canvas width> <height> <channels> <oversampling> <file>...
//
// Prints an array with {"error"} or {"shape": [h, w, C], "size": [width,
// height], "window"} a file, and writes the pixels to <folder>/<index>.

#include <ATen/ATen.h>
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

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  lensbox::Reading reading{.canvas = {}};
  reading.orientation = words.at(1) == "exif" ? lensbox::Orientation::kExif : lensbox::Orientation::kStored;
  reading.canvas = {.height = std::stoi(words.at(3)),
                    .width = std::stoi(words.at(2)),
                    .channels = std::stoi(words.at(4)),
                    .fill = 0};
  reading.jpeg_oversampling = std::stoi(words.at(5));
  Json outcomes = Json::array();
  for (size_t i = 6; i < words.size(); ++i) {
    outcomes.push_back(read(words[i], reading, words[0] + "/" + std::to_string(i - 6)));
  }
  std::cout << outcomes.dump(-1, ' ', false, Json::error_handler_t::replace) << '\n';
}
