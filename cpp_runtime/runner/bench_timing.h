#pragma once

#include <c10/core/Device.h>

#include <vector>

#include "bench_ways.h"

// Waits until the device has done what this thread has asked of it.
void wait_for(c10::Device device);

// Milliseconds of call after call of each way, up to the result on the device. The ways take turns, so that a
// disturbance meets all of them, for `seconds` a way or more, at least once each.
std::vector<std::vector<double>> sample_latencies(const std::vector<BenchWay>& ways, c10::Device device,
                                                  double seconds);

// Calls a second: as many threads as `callers` call the way again and again for `seconds`, on a GPU each on a
// stream of its own, and wait for the device after every `calls_between_waits` calls.
double calls_per_second(const BenchWay& way, c10::Device device, double seconds, size_t callers,
                        size_t calls_between_waits);
