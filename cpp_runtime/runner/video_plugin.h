#pragma once

#include <lensbox/image_view.h>

#include <optional>

// The interface between the program and liblensbox_video.so. OpenCV brings along 200 libraries, which take a
// quarter of a second to load, so the program loads them only for --video.

class Video {
 public:
  virtual ~Video() = default;

  // Return the next frame, in memory that stays unchanged until the next call; nothing at the end.
  virtual std::optional<lensbox::ImageView> read() = 0;
};

inline constexpr const char* kVideoLibrary = "liblensbox_video.so";
inline constexpr const char* kOpenVideo = "lensbox_open_video";

// Open a video file, or the camera with a number if `camera` is at least 0; `delete` closes it. Null if it
// cannot be opened.
using OpenVideo = Video* (*)(const char* file, int camera);
