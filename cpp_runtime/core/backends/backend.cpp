#include "backends/backend.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <sstream>
#include <system_error>

#include "file/errors.h"

namespace lensbox {

void check_source(const DecodedPhoto& photo, size_t index) {
  named("photo " + std::to_string(index), [&] {
    if (photo.width < 1 || photo.height < 1) {
      throw InputError("width and height must be at least 1, got " + std::to_string(photo.width) + " x " +
                       std::to_string(photo.height));
    }
    const auto [x1, y1, x2, y2] = photo.window;
    const bool is_finite = std::ranges::all_of(photo.window, [](float edge) { return std::isfinite(edge); });
    if (is_finite && x1 < x2 && y1 < y2) return;
    std::ostringstream message;
    message << "window must be finite numbers x1 < x2 and y1 < y2, got " << x1 << ", " << y1 << ", " << x2
            << ", " << y2;
    throw InputError(message.str());
  });
}

void refuse_gpu_decoder(Decode decode, const std::string& reason) {
  if (decode == Decode::kGpu) throw DeviceError("decode must be auto or cpu here, got gpu: " + reason);
}

std::optional<int> gpu_index(const std::string& name) {
  if (name == "cpu") return std::nullopt;
  if (name == "cuda") return 0;
  int index = -1;
  if (name.starts_with("cuda:")) {
    const char* const end = name.data() + name.size();
    const auto [last, error] = std::from_chars(name.data() + 5, end, index);
    if (error == std::errc() && last == end && index >= 0) return index;
  }
  throw DeviceError("device must be cpu, cuda, cuda:N or auto, got '" + name + "'");
}

bool has_loss(const Metadata& metadata) {
  return metadata.file_kind == FileKind::kTorchScript ||
         std::ranges::find(metadata.methods, "loss") != metadata.methods.end();
}

}  // namespace lensbox
