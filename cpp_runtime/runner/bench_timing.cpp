#include "bench_timing.h"

#include <ATen/Parallel.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <optional>
#include <thread>

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Return the number of calls.
size_t call_for(const BenchWay& way, c10::Device device, Clock::time_point start, double seconds,
                size_t calls_between_waits) {
  size_t calls = 0;
  do {
    for (size_t i = 0; i < calls_between_waits; ++i) {
      way.call();
    }
    wait_for(device);
    calls += calls_between_waits;
  } while (seconds_since(start) < seconds);
  return calls;
}

}  // namespace

void wait_for(c10::Device device) {
  if (!device.is_cuda()) return;
  c10::impl::VirtualGuardImpl(device.type()).getStream(device).synchronize();
}

std::vector<std::vector<double>> sample_latencies(const std::vector<BenchWay>& ways, c10::Device device,
                                                  double seconds) {
  std::vector<std::vector<double>> milliseconds(ways.size());
  const auto start = Clock::now();
  do {
    for (size_t i = 0; i < ways.size(); ++i) {
      const auto begin = Clock::now();
      ways[i].call();
      wait_for(device);
      milliseconds[i].push_back(seconds_since(begin) * 1e3);
    }
  } while (seconds_since(start) < seconds * static_cast<double>(ways.size()));
  return milliseconds;
}

double calls_per_second(const BenchWay& way, c10::Device device, double seconds, size_t callers,
                        size_t calls_between_waits) {
  std::vector<size_t> calls(callers);
  std::vector<std::exception_ptr> errors(callers);
  const auto start = Clock::now();
  const auto work = [&](size_t caller) {
    try {
      at::init_num_threads();  // the number is each thread's own
      std::optional<c10::StreamGuard> on_stream;
      if (device.is_cuda()) {
        on_stream.emplace(c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device));
      }
      calls[caller] = call_for(way, device, start, seconds, calls_between_waits);
    } catch (...) {
      errors[caller] = std::current_exception();
    }
  };
  {
    // The first caller is this thread, for which torch is already warm.
    std::vector<std::jthread> threads;
    for (size_t caller = 1; caller < callers; ++caller) {
      threads.emplace_back(work, caller);
    }
    work(0);
  }
  const double elapsed = seconds_since(start);
  size_t all = 0;
  for (size_t caller = 0; caller < callers; ++caller) {
    if (errors[caller]) std::rethrow_exception(errors[caller]);
    all += calls[caller];
  }
  return static_cast<double>(all) / elapsed;
}

double percentile(std::vector<double> samples, double share) {
  std::ranges::sort(samples);
  const double position = share * static_cast<double>(samples.size() - 1);
  const auto low = static_cast<size_t>(position);
  const size_t high = std::min(low + 1, samples.size() - 1);
  return std::lerp(samples[low], samples[high], position - static_cast<double>(low));
}
