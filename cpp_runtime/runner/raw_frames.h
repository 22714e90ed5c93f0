#pragma once

#include <cstdint>
#include <vector>

#include "frame_source.h"
#include "raw_format.h"
#include "stop_signal.h"

// Frames read from a descriptor, such as that of stdin. Each is read into the memory in which it is looked
// at.
class RawFrames final : public FrameSource {
 public:
  // slots: frames whose memory is kept. output: where their answers go; when nobody reads there any more,
  // waiting for a frame ends as well.
  RawFrames(int input, int output, const RawFormat& format, const lensbox::ReadOptions& reading, size_t slots,
            const StopSignal& stop);

  // Throws std::system_error.
  std::optional<lensbox::Photo> read(size_t slot) override;
  void check_end() const override;

 private:
  bool wait_for_input() const;

  int input_;
  int output_;
  RawFormat format_;
  lensbox::ReadOptions reading_;
  const StopSignal& stop_;
  std::vector<std::vector<uint8_t>> frames_;
  size_t begun_ = 0;  // bytes of a last frame that is not whole
};
