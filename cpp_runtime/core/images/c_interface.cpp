#include "images/c_interface.h"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <memory>
#include <new>
#include <utility>

#include "cpu/launchers.h"  // of the op library
#include "images/decoders.h"
#include "jpeg_scan.h"

namespace lensbox {

namespace {

int32_t outcome_of(lensbox_image_outcome outcome, const char* message, char* reason, size_t reason_size) {
  std::snprintf(reason, reason_size, "%s", message);
  return outcome;
}

// Call a function, and return the outcome for its exception.
template <class Function>
int32_t outcome_of(Function function, char* reason, size_t reason_size) {
  const auto failed = [&](lensbox_image_outcome outcome, const std::exception& error) {
    return outcome_of(outcome, error.what(), reason, reason_size);
  };
  try {
    function();
    return LENSBOX_IMAGE_READ;
  } catch (const TooManyPixels& error) {
    return failed(LENSBOX_IMAGE_TOO_MANY_PIXELS, error);
  } catch (const InputError& error) {
    return failed(LENSBOX_IMAGE_BAD, error);
  } catch (const DeadlineError& error) {
    return failed(LENSBOX_IMAGE_TIMEOUT, error);
  } catch (const std::bad_alloc&) {
    return outcome_of(LENSBOX_IMAGE_OUT_OF_MEMORY, "no memory for the image", reason, reason_size);
  } catch (const std::exception& error) {
    return failed(LENSBOX_IMAGE_INTERNAL, error);
  }
}

Reading reading_of(const lensbox_image_reading& reading) {
  return {.canvas = {.height = reading.canvas_height,
                     .width = reading.canvas_width,
                     .channels = reading.canvas_channels,
                     .fill = 0,
                     .fit = reading.fit},
          .orientation = reading.is_stored ? Orientation::kStored : Orientation::kExif,
          .jpeg_oversampling = reading.jpeg_oversampling};
}

ImageLimits limits_of(const lensbox_image_limits& limits) {
  return {limits.max_pixels, limits.max_png_bytes, limits.deadline};
}

}  // namespace
}  // namespace lensbox

using lensbox::outcome_of;

int32_t lensbox_image_read(const uint8_t* file, size_t size, const lensbox_image_reading* reading,
                           const lensbox_image_limits* limits, lensbox_image* image, char* reason,
                           size_t reason_size) {
  const auto read = [&] {
    const lensbox::DecodedPhoto photo =
        lensbox::decode_photo({file, size}, lensbox::reading_of(*reading), lensbox::limits_of(*limits));
    const lensbox::Pixels& pixels = photo.pixels;
    image->width = photo.width;
    image->height = photo.height;
    std::ranges::transform(photo.window, image->window,
                           [](float edge) { return static_cast<int64_t>(edge); });
    image->rows = pixels.height;
    image->columns = pixels.width;
    image->channels = pixels.channels;
    image->pixels = pixels.data;
    image->owner = new std::shared_ptr<uint8_t[]>(pixels.memory);
  };
  return outcome_of(read, reason, reason_size);
}

void lensbox_image_free(void* owner) {
  delete static_cast<std::shared_ptr<uint8_t[]>*>(owner);
}

int32_t lensbox_image_read_header(const uint8_t* file, size_t size, const lensbox_image_limits* limits,
                                  lensbox_image_header* header, char* reason, size_t reason_size) {
  const auto read = [&] {
    const auto found = lensbox::read_header({file, size}, lensbox::limits_of(*limits));
    *header = {found.width, found.height, found.orientation};
  };
  return outcome_of(read, reason, reason_size);
}

int32_t lensbox_image_is_for_gpu(const uint8_t* file, size_t size, const lensbox_image_reading* reading,
                                 lensbox_image_header* header) {
  lensbox::JpegScan scan;
  if (lensbox::lensbox_cpu_read_jpeg(file, size, nullptr, scan) == 0) return 0;
  bool is_for_gpu = false;
  const auto look = [&] {
    const lensbox::Reading wanted = lensbox::reading_of(*reading);
    const auto exif = std::span(file, size).subspan(scan.exif_begin, scan.exif_end - scan.exif_begin);
    const int orientation =
        wanted.orientation == lensbox::Orientation::kStored ? 1 : lensbox::exif_orientation(exif);
    *header = {scan.width, scan.height, orientation};
    if (lensbox::turn_of(orientation, wanted.orientation).swap) std::swap(header->width, header->height);
    is_for_gpu = lensbox::jpeg_reduction(scan.width, scan.height, orientation, wanted) == 1;
  };
  outcome_of(look, nullptr, 0);  // reading the file says which argument is wrong
  return is_for_gpu ? 1 : 0;
}

int32_t lensbox_image_interface(void) {
  return LENSBOX_IMAGES_INTERFACE;
}

int32_t lensbox_image_exif_orientation(const uint8_t* tiff, size_t size) {
  return lensbox::exif_orientation({tiff, size});
}
