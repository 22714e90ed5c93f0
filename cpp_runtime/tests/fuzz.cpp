// Fuzz targets for the readers of data from strangers: images, lensbox.json, ONNX models.

#include <lensbox/torch/tensors.h>

#include "file/metadata.h"
#include "file/onnx_model.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  [[maybe_unused]] const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
#if defined(LENSBOX_FUZZ_image)
    lensbox::read_photo({data, size}, {.canvas = {.height = 24, .width = 32, .channels = 1, .fill = 0}});
#elif defined(LENSBOX_FUZZ_metadata)
    lensbox::parse_metadata(text, "fuzzed");
#else
    lensbox::read_onnx_model(text);
#endif
  } catch (const lensbox::Error&) {
    // the expected answer to damage
  }
  return 0;
}
