// JPEG files on the CPU: contents, headers and the check of a GPU's decoder. Not ops of tensors, so in a
// namespace of their own: nothing here is traced. `gpu_jpeg.cpp` has the decoder.

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "../backends.h"
#include "../checks.h"
#include "../fit.h"

namespace lensbox {
namespace {

// Return whether a file is accepted and its coded data are sound, walked in `parts` parts.
bool is_well_formed(const Tensor& file, int64_t parts) {
  TORCH_CHECK_VALUE(parts >= 1 && parts <= 1024, "lensbox_jpeg: parts must be from 1 to 1024, got ", parts);
  const Tensor copy = at::empty_like(file);
  JpegScan scan;
  uint8_t* const out = copy.mutable_data_ptr<uint8_t>();
  return lensbox_cpu_read_jpeg(bytes_of_file(file), static_cast<size_t>(file.size(0)), out, scan) > 0 &&
         lensbox_cpu_is_well_formed_jpeg(out, scan, static_cast<int32_t>(parts));
}

// Return the content of a regular file, uint8 [N]; empty if the file is larger than kMaxJpegBytes or cannot
// be read.
Tensor content_of(const std::string& path) {
  namespace fs = std::filesystem;
  const Tensor nothing = at::empty({0}, at::kByte);
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return nothing;  // opening a pipe may block
  const auto size = static_cast<int64_t>(fs::file_size(path, error));
  if (error || size > kMaxJpegBytes) return nothing;
  const Tensor content = at::empty({size}, at::kByte);
  std::ifstream stream(path, std::ios::binary);
  stream.read(static_cast<char*>(content.mutable_data_ptr()), size);
  return stream ? content : nothing;
}

// Return RGB, uint8 [3, H, W], of planes on the CPU, with the arithmetic of the GPU. luma: uint8 [H, W].
// cb, cr: uint8 [ceil(H / down), ceil(W / across)].
Tensor to_rgb(const Tensor& luma, const Tensor& cb, const Tensor& cr, int64_t across, int64_t down) {
  TORCH_CHECK_VALUE(across >= 1 && across <= 2 && down >= 1 && down <= 2,
                    "lensbox_jpeg: across and down must be 1 or 2, got ", across, " and ", down);
  for (const Tensor& plane : {luma, cb, cr}) {
    TORCH_CHECK_VALUE(plane.is_cpu() && plane.scalar_type() == at::kByte && plane.dim() == 2,
                      "lensbox_jpeg: a plane must be uint8 [H, W] on the CPU, got ", plane.toString(), " ",
                      plane.sizes());
  }
  const int64_t height = luma.size(0), width = luma.size(1);
  TORCH_CHECK_VALUE(height <= kLongestSide && width <= kLongestSide,
                    "lensbox_jpeg: luma must have sides of at most ", kLongestSide, " pixels, got ",
                    luma.sizes());
  const std::vector<int64_t> expected = {(height + down - 1) / down, (width + across - 1) / across};
  TORCH_CHECK_VALUE(cb.sizes() == expected && cr.sizes() == expected,
                    "lensbox_jpeg: cb and cr must have the shape ", at::IntArrayRef(expected), ", got ",
                    cb.sizes(), " and ", cr.sizes());
  const Tensor out = luma.expand({3, height, width}).contiguous();
  const Tensor blue = plain_memory(cb), red = plain_memory(cr);
  const JpegColors image = {
      out.mutable_data_ptr<uint8_t>(), {blue.const_data_ptr<uint8_t>(), red.const_data_ptr<uint8_t>()},
      static_cast<int32_t>(width),     static_cast<int32_t>(height),
      static_cast<int32_t>(across),    static_cast<int32_t>(down)};
  lensbox_cpu_convert_jpeg_colors(&image, 1);
  return out;
}

// Return the contents of files, uint8 [N]; empty for each file that cannot be read or is too large.
std::vector<Tensor> read_files(const std::vector<std::string>& paths) {
  std::vector<Tensor> files;
  for (const std::string& path : paths)
    files.push_back(content_of(path));
  return files;
}

// Return the headers of files, int64 [F, 4]: width, height, begin and end of the EXIF data in the file. The
// row of a file that is not accepted holds zeros.
Tensor headers(at::TensorList files) {
  const Tensor out = at::zeros({static_cast<int64_t>(files.size()), 4}, at::kLong);
  auto* header = out.mutable_data_ptr<int64_t>();
  for (size_t i = 0; i < files.size(); ++i, header += 4) {
    JpegScan scan;
    const auto size = static_cast<size_t>(files[i].size(0));
    if (lensbox_cpu_read_jpeg(bytes_of_file(files[i]), size, nullptr, scan) == 0) continue;
    header[0] = scan.width;
    header[1] = scan.height;
    header[2] = scan.exif_begin;
    header[3] = scan.exif_end;
  }
  return out;
}

}  // namespace
}  // namespace lensbox

TORCH_LIBRARY(lensbox_jpeg, m) {
  m.def("is_well_formed(Tensor file, int parts=1) -> bool", lensbox::is_well_formed);
  m.def("read_files(str[] paths) -> Tensor[]", lensbox::read_files);
  m.def("headers(Tensor[] files) -> Tensor", lensbox::headers);
  m.def("to_rgb(Tensor luma, Tensor cb, Tensor cr, int across, int down) -> Tensor", lensbox::to_rgb);
}
