#pragma once

#include <lensbox/image_view.h>

#include <cstddef>
#include <optional>

// What the program and liblensbox_video.so agree upon. OpenCV brings along 200 libraries, which take a
// quarter of a second to load, so the program loads them only for --video.

class Video {
 public:
  virtual ~Video() = default;

  // The next frame, in memory that stays as it is until the same slot is read into again; nothing at the end.
  virtual std::optional<lensbox::ImageView> read(size_t slot) = 0;
};

inline constexpr const char* kVideoLibrary = "liblensbox_video.so";
inline constexpr const char* kOpenVideo = "lensbox_open_video";

// The video in a file, or of the camera with a number if `camera` is at least 0, which `delete` closes; null
// if it cannot be opened. slots: frames whose memory is kept.
using OpenVideo = Video* (*)(const char* file, int camera, size_t slots);
