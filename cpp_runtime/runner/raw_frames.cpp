#include "raw_frames.h"

#include <ATen/ATen.h>
#include <lensbox/error.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>
#include <system_error>

#include "standard_streams.h"

RawFrames::RawFrames(int input, int output, const RawFormat& format, const lensbox::ReadOptions& reading,
                     size_t slots, const StopSignal& stop)
    : input_(input), output_(output), format_(format), reading_(reading), stop_(stop), frames_(slots) {}

std::optional<lensbox::Photo> RawFrames::read(size_t slot) {
  std::vector<uint8_t>& frame = frames_.at(slot);
  frame.resize(format_.frame_size());
  size_t size = 0;
  while (size < frame.size()) {
    if (!wait_for_input()) return std::nullopt;
    const ssize_t received = ::read(input_, frame.data() + size, frame.size() - size);
    if (received > 0) {
      size += static_cast<size_t>(received);
    } else if (received == 0) {
      begun_ = size;
      return std::nullopt;
    } else if (errno != EINTR && errno != EAGAIN) {
      throw std::system_error(errno, std::generic_category(), "cannot read frames");
    }
  }
  return lensbox::to_photo(format_.view(frame.data()), reading_);
}

void RawFrames::check_end() const {
  if (begun_ == 0) return;
  throw lensbox::InputError("the last frame is truncated: got " + std::to_string(begun_) +
                            " bytes, a frame of " + format_.text() + " has " +
                            std::to_string(format_.frame_size()));
}

// False once the end was asked for. Throws ClosedOutput if nobody reads the answers any more.
bool RawFrames::wait_for_input() const {
  std::array<pollfd, 3> descriptors{{{.fd = input_, .events = POLLIN, .revents = 0},
                                     {.fd = stop_.descriptor(), .events = POLLIN, .revents = 0},
                                     // No events: only the other end's closing is reported, of a pipe as an
                                     // error, of a socket or a terminal as a hang-up.
                                     {.fd = output_, .events = 0, .revents = 0}}};
  while (poll(descriptors.data(), descriptors.size(), -1) < 0) {
    if (errno != EINTR) throw std::system_error(errno, std::generic_category(), "cannot wait for frames");
  }
  if (descriptors[1].revents != 0) return false;
  if ((descriptors[2].revents & (POLLERR | POLLHUP)) != 0) throw ClosedOutput();
  return true;
}
