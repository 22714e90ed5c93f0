#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <string>
#include <vector>

// A way to do the same work, for one batch of images.
struct BenchWay {
  std::string name;
  std::function<void()> call;  // may return before the device is done
};

// Wait until the device has done the work of this thread.
void wait_for(c10::Device device);

// Return the milliseconds of each call of each way, up to the result on the device. The ways take turns, so
// that a disturbance meets all of them, for `seconds` a way or more, at least once each.
std::vector<std::vector<double>> sample_latencies(const std::vector<BenchWay>& ways, c10::Device device,
                                                  double seconds);

// Return the calls per second: as many threads as `callers` call the way again and again for `seconds`, on a
// GPU each on a stream of its own, and wait for the device after every `calls_between_waits` calls.
double calls_per_second(const BenchWay& way, c10::Device device, double seconds, size_t callers,
                        size_t calls_between_waits);

// Return the value below which `share` (0..1) of the samples lie, interpolated linearly between neighbours.
// At least one sample.
double percentile(std::vector<double> samples, double share);
