#pragma once

#include <lensbox/torch/photo.h>

#include <cstddef>
#include <optional>

// Frames one after another, of a stream or a video.
class FrameSource {
 public:
  virtual ~FrameSource() = default;

  // The next frame, in memory that stays as it is until the same slot is read into again; nothing once there
  // are no more, or the end was asked for. Throws InputError.
  virtual std::optional<lensbox::Photo> read(size_t slot) = 0;

  // After the last frame: throws InputError if the stream ended within one.
  virtual void check_end() const {}
};
