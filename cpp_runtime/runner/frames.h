#pragma once

#include <lensbox/image_view.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

// The format of frames without headers, one after another, rows without gaps.
struct RawFormat {
  int64_t width;
  int64_t height;
  lensbox::PixelFormat pixels;
  std::string text;  // the two values of --raw, as "640x480 gray8"

  // Return the bytes of a frame.
  size_t frame_size() const;
  lensbox::ImageView view(const uint8_t* frame) const;
};

// Parse the two values of --raw, such as "640x480" and "gray8". Throws UsageError.
RawFormat parse_raw_format(const std::string& size, const std::string& pixels);

// Frames read from a descriptor, such as stdin.
class RawFrames {
 public:
  // output: the descriptor of the results. If its other end closes while the reader waits for a frame, next()
  // throws ClosedOutput. stop: a descriptor that is readable once the end is requested.
  RawFrames(int input, int output, const RawFormat& format, int stop)
      : input_(input), output_(output), format_(format), stop_(stop) {}

  const RawFormat& format() const { return format_; }

  // Read the next frame into `frame`. Return false at the end, once the end was requested, or if the stream
  // cannot be read. Throws std::system_error.
  bool read(std::vector<uint8_t>& frame);

  // After the last frame: throws InputError if the stream ended within a frame, std::system_error if it
  // cannot be read.
  void check_end() const;

 private:
  bool wait_for_input() const;

  int input_;
  int output_;
  RawFormat format_;
  int stop_;
  size_t begun_ = 0;  // bytes of a last frame that is not whole
  int error_ = 0;     // of the last call of read()
};
