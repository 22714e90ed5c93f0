#include "frames.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <map>
#include <string_view>
#include <system_error>

#include "commands.h"
#include "images/decoders.h"
#include "streams.h"

namespace {

using lensbox::PixelFormat;

const std::map<std::string, PixelFormat> kFormats{{"gray8", PixelFormat::kGray8},
                                                  {"rgb8", PixelFormat::kRgb8},
                                                  {"bgr8", PixelFormat::kBgr8},
                                                  {"nv12", PixelFormat::kNv12},
                                                  {"yuyv", PixelFormat::kYuyv}};

// Return 0 unless all of the text is a number of at least 1.
int64_t parse_side(std::string_view text) {
  int64_t side = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), side);
  return error == std::errc() && end == text.data() + text.size() && side >= 1 ? side : 0;
}

}  // namespace

size_t RawFormat::frame_size() const {
  const int64_t chroma =
      pixels == PixelFormat::kNv12 ? 2 * lensbox::pairs_of(width) * lensbox::pairs_of(height) : 0;
  return static_cast<size_t>(row_bytes(pixels, width) * height + chroma);
}

lensbox::ImageView RawFormat::view(const uint8_t* frame) const {
  const int64_t stride = row_bytes(pixels, width);
  lensbox::ImageView view{
      .data = frame, .width = width, .height = height, .stride = stride, .format = pixels};
  if (pixels == PixelFormat::kNv12) {
    view.chroma = frame + stride * height;
    view.chroma_stride = 2 * lensbox::pairs_of(width);
  }
  return view;
}

RawFormat parse_raw_format(const std::string& size, const std::string& pixels) {
  const auto found = kFormats.find(pixels);
  if (found == kFormats.end()) {
    throw UsageError("--raw: the format of pixels must be gray8, rgb8, bgr8, nv12 or yuyv, got '" + pixels +
                     "'");
  }
  const std::string_view text = size;
  const size_t x = std::min(text.find('x'), text.size());
  const RawFormat format{.width = parse_side(text.substr(0, x)),
                         .height = parse_side(text.substr(std::min(x + 1, text.size()))),
                         .pixels = found->second,
                         .text = size + " " + pixels};
  if (format.width == 0 || format.height == 0 || format.width > lensbox::kMaxImagePixels / format.height) {
    throw UsageError("--raw: the size must be WIDTHxHEIGHT, both at least 1, of at most " +
                     std::to_string(lensbox::kMaxImagePixels) + " pixels, got '" + size + "'");
  }
  return format;
}

bool RawFrames::read(std::vector<uint8_t>& frame) {
  frame.resize(format_.frame_size());
  size_t size = 0;
  while (size < frame.size()) {
    if (!wait_for_input()) return false;
    const ssize_t received = ::read(input_, frame.data() + size, frame.size() - size);
    if (received > 0) {
      size += static_cast<size_t>(received);
    } else if (received == 0 || (errno != EINTR && errno != EAGAIN)) {
      error_ = received == 0 ? 0 : errno;
      begun_ = size;
      return false;
    }
  }
  return true;
}

void RawFrames::check_end() const {
  if (error_ != 0) throw std::system_error(error_, std::generic_category(), "cannot read frames");
  if (begun_ == 0) return;
  throw lensbox::InputError("the last frame is truncated: got " + std::to_string(begun_) +
                            " bytes, a frame of " + format_.text + " has " +
                            std::to_string(format_.frame_size()));
}

// Return false once the end was requested. Throws ClosedOutput if stdout is closed.
bool RawFrames::wait_for_input() const {
  std::array<pollfd, 3> descriptors{{{.fd = input_, .events = POLLIN, .revents = 0},
                                     {.fd = stop_, .events = POLLIN, .revents = 0},
                                     // No events: poll() reports only that the reader has closed its end,
                                     // for a pipe as POLLERR, for a socket or terminal as POLLHUP.
                                     {.fd = output_, .events = 0, .revents = 0}}};
  while (poll(descriptors.data(), descriptors.size(), -1) < 0) {
    if (errno != EINTR) throw std::system_error(errno, std::generic_category(), "cannot wait for frames");
  }
  if (descriptors[1].revents != 0) return false;
  if ((descriptors[2].revents & (POLLERR | POLLHUP)) != 0) throw ClosedOutput();
  return true;
}
