#include "frame.h"

#include <ATen/ATen.h>
#include <lensbox/torch/image_tensor.h>

#include "pixel_formats.h"

namespace lensbox {
namespace {

// uint8 [C, H, W] in the memory of the view.
at::Tensor tensor_of(const ImageView& view, int64_t channels) {
  // torch has no tensors that only read.
  auto* const data = const_cast<uint8_t*>(view.data);
  return at::from_blob(data, {channels, view.height, view.width}, {1, view.stride, channels}, at::kByte);
}

at::Tensor pixels_of(const ImageView& view, const ReadOptions& options) {
  const bool to_gray = options.canvas && options.canvas->channels == 1;
  switch (view.format) {
    case PixelFormat::kGray8:
      return tensor_of(view, 1);
    case PixelFormat::kRgb8:
      return tensor_of(view, 3);
    case PixelFormat::kBgr8:
      return to_tensor(bgr8_to_rgb(view));
    case PixelFormat::kNv12:
      break;
  }
  return to_tensor(to_gray ? nv12_to_gray(view) : nv12_to_rgb(view));
}

}  // namespace

Photo read_frame(const ImageView& view, const ReadOptions& options, const std::string& name) {
  check_view(view, name);
  return Photo::of(pixels_of(view, options));
}

Photo to_photo(const ImageView& view, const ReadOptions& options) {
  return read_frame(view, options, "image");
}

}  // namespace lensbox
