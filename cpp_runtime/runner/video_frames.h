#pragma once

#include <memory>
#include <string>

#include "frame_source.h"
#include "stop_signal.h"

// The frames of a video file, or of the camera with that number. Throws UsageError where the program was
// built without OpenCV, InputError if the video cannot be opened. slots: frames whose memory is kept.
std::unique_ptr<FrameSource> open_video(const std::string& name, const lensbox::ReadOptions& reading,
                                        size_t slots, const StopSignal& stop);
