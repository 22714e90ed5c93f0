// camera_frames ARTIFACT WIDTH HEIGHT FRAMES THREADS: detect in frames in memory, in several threads with one
// detector. The frames are gray gradients in place of a camera's. Prints the number of detections in each
// frame.

#include <lensbox/detector.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <iostream>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace {

// The address, size, stride and format of a frame; a cv::Mat of BGR would be
//   {mat.data, mat.cols, mat.rows, static_cast<int64_t>(mat.step[0]), lensbox::PixelFormat::kBgr8}.
lensbox::ImageView view_of(const std::vector<uint8_t>& frame, int64_t width, int64_t height) {
  return {.data = frame.data(),
          .width = width,
          .height = height,
          .stride = width,
          .format = lensbox::PixelFormat::kGray8};
}

std::vector<uint8_t> next_frame(int64_t width, int64_t height, int64_t number) {
  std::vector<uint8_t> frame(static_cast<size_t>(width * height));
  std::ranges::generate(frame, [value = number]() mutable { return static_cast<uint8_t>(value++); });
  return frame;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) {
    std::cerr << "usage: camera_frames ARTIFACT WIDTH HEIGHT FRAMES THREADS\n";
    return 2;
  }
  try {
    const lensbox::Detector detector = lensbox::Detector::load(argv[1]);
    const int64_t width = std::stoll(argv[2]);
    const int64_t height = std::stoll(argv[3]);
    const int64_t frames = std::stoll(argv[4]);
    const int64_t threads = std::stoll(argv[5]);
    std::mutex mutex;  // guards the output and the error
    std::exception_ptr failure;
    {
      std::vector<std::jthread> workers;
      for (int64_t worker = 0; worker < threads; ++worker) {
        workers.emplace_back([&, worker] {
          try {
            for (int64_t number = worker; number < frames; number += threads) {
              const std::vector<uint8_t> frame = next_frame(width, height, number);
              const size_t count = detector.detect(view_of(frame, width, height)).size();
              const std::lock_guard lock(mutex);
              std::cout << "frame " << number << ": " << count << '\n';
            }
          } catch (...) {
            const std::lock_guard lock(mutex);
            failure = std::current_exception();
          }
        });
      }
    }
    if (failure) std::rethrow_exception(failure);
    return 0;
  } catch (const lensbox::Error& error) {
    std::cerr << error.what() << '\n';
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {  // thrown by std::stoll
    std::cerr << error.what() << '\n';
    return 2;
  }
}
