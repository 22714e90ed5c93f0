/* The image reader for other languages: liblensbox_images.so, which needs libjpeg-turbo, libpng and zlib
 * alone.
 *
 * All functions may be called from several threads at once, and hold no state. Python calls them by ctypes
 * (runtime/images/core.py), which must have the same structs. */
#ifndef LENSBOX_IMAGES_H
#define LENSBOX_IMAGES_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LENSBOX_IMAGES_API __attribute__((visibility("default")))

/* The version of this interface, which core.py compares: add 1 in both if a struct or a function changes. */
#define LENSBOX_IMAGES_INTERFACE 1
LENSBOX_IMAGES_API int32_t lensbox_image_interface(void);

/* What a function returns. For all but LENSBOX_IMAGE_READ it writes a reason. */
enum lensbox_image_outcome {
  LENSBOX_IMAGE_READ = 0,
  LENSBOX_IMAGE_BAD = 1,             /* damaged, truncated, or of a kind that is not read */
  LENSBOX_IMAGE_TOO_MANY_PIXELS = 2, /* for the limits */
  LENSBOX_IMAGE_TIMEOUT = 3,         /* at the deadline */
  LENSBOX_IMAGE_OUT_OF_MEMORY = 4,
  LENSBOX_IMAGE_INTERNAL = 5 /* a value of an argument, or a failure of a library */
};

/* The rule "Reading images" of docs/artifact.md. */
struct lensbox_image_reading {
  int64_t canvas_width;
  int64_t canvas_height;
  int64_t canvas_channels;   /* 1: gray */
  int64_t jpeg_oversampling; /* 0: at full size */
  int64_t is_stored;         /* 0: turn upright by EXIF data */
  const char* fit;           /* such as "letterbox" */
};

struct lensbox_image_limits {
  int64_t max_pixels;
  int64_t max_png_bytes; /* of uncompressed pixels */
  double deadline;       /* seconds of CLOCK_MONOTONIC, or infinity */
};

struct lensbox_image {
  int64_t width; /* of the upright photograph at full size */
  int64_t height;
  int64_t window[4]; /* x1, y1, x2, y2: the part of the photograph that the pixels show */
  int64_t rows, columns, channels;
  uint8_t* pixels; /* [rows, columns, channels] */
  void* owner;     /* of the pixels, for lensbox_image_free */
};

struct lensbox_image_header {
  int64_t width;
  int64_t height;
  int64_t orientation; /* EXIF's, 1 to 8 */
};

/* Read a JPEG or PNG file. reason: gets a text, cut off to `reason_size` bytes with its final zero. */
LENSBOX_IMAGES_API int32_t lensbox_image_read(const uint8_t* file, size_t size,
                                              const struct lensbox_image_reading* reading,
                                              const struct lensbox_image_limits* limits,
                                              struct lensbox_image* image, char* reason, size_t reason_size);

/* Give the pixels back. */
LENSBOX_IMAGES_API void lensbox_image_free(void* owner);

/* Read the header of a JPEG or PNG file, as stored. */
LENSBOX_IMAGES_API int32_t lensbox_image_read_header(const uint8_t* file, size_t size,
                                                     const struct lensbox_image_limits* limits,
                                                     struct lensbox_image_header* header, char* reason,
                                                     size_t reason_size);

/* Return whether a JPEG file is one that a GPU may decode, at full size, and the header of the photograph:
 * upright, or as stored with the orientation 1. It looks at the file's header alone, as the op
 * lensbox_jpeg::headers does. */
LENSBOX_IMAGES_API int32_t lensbox_image_is_for_gpu(const uint8_t* file, size_t size,
                                                    const struct lensbox_image_reading* reading,
                                                    struct lensbox_image_header* header);

/* Return the orientation, 1 to 8, in EXIF data, a TIFF structure; 1 if they are broken. */
LENSBOX_IMAGES_API int32_t lensbox_image_exif_orientation(const uint8_t* tiff, size_t size);

#ifdef __cplusplus
}
#endif

#endif
