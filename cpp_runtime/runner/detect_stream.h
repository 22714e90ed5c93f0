#pragma once

#include "commands.h"
#include "frame_source.h"
#include "model.h"

// Finds objects in frame after frame, options.batch of them at a time, and prints a line for each. Returns
// the exit code once there are no more. Throws InputError if the stream ended within a frame, ClosedOutput.
ExitCode detect_stream(const LoadedDetector& detector, FrameSource& frames, const DetectOptions& options);
