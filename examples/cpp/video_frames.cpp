// video_frames ARTIFACT WIDTH HEIGHT [THREADS]: reads frames of NV12 from stdin, as a video decoder gives
// them, for example ffmpeg -i video.mp4 -f rawvideo -pix_fmt nv12 -, and prints how much is found in each.
// All threads use one detector.

#include <lensbox/detector.h>

#include <charconv>
#include <cstdint>
#include <cstring>
#include <exception>
#include <iostream>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace {

// Nothing but a number of at least 1, else 0.
int64_t number(const char* text) {
  int64_t value = 0;
  const char* const end = text + std::strlen(text);
  const auto [last, error] = std::from_chars(text, end, value);
  return error == std::errc() && last == end && value > 0 ? value : 0;
}

// A frame without padding: the plane of luma, then that of chroma.
lensbox::ImageView view_of(const std::vector<uint8_t>& frame, int64_t width, int64_t height) {
  return {.data = frame.data(),
          .width = width,
          .height = height,
          .stride = width,
          .format = lensbox::PixelFormat::kNv12,
          .chroma = frame.data() + width * height,
          .chroma_stride = (width + 1) / 2 * 2};
}

// Frames in and lines out, for several threads.
class Frames {
 public:
  // The next frame's number from 0 on, or -1 at the end, and after stop().
  int64_t read(std::vector<uint8_t>& frame) {
    const std::lock_guard lock(reading_);
    if (failure()) return -1;
    std::cin.read(reinterpret_cast<char*>(frame.data()), std::ssize(frame));
    if (std::cin) return next_++;
    if (std::cin.gcount() > 0) std::cerr << "the last frame is cut off\n";
    return -1;
  }

  void print(int64_t number, size_t found) {
    const std::lock_guard lock(mutex_);
    std::cout << "frame " << number << ": " << found << '\n';
  }

  // No thread shall take another frame.
  void stop(std::exception_ptr failure) {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::move(failure);
  }

  // Why the first thread stopped, if one did.
  std::exception_ptr failure() const {
    const std::lock_guard lock(mutex_);
    return failure_;
  }

 private:
  std::mutex reading_;  // may be held for long: nobody who prints must wait for it
  int64_t next_ = 0;
  mutable std::mutex mutex_;
  std::exception_ptr failure_;
};

// Of the whole frame: luma, and a pair of chroma for each 2 x 2 pixels.
int64_t frame_size(int64_t width, int64_t height) {
  return width * height + (width + 1) / 2 * 2 * ((height + 1) / 2);
}

void detect_frames(const lensbox::Detector& detector, int64_t width, int64_t height, Frames& frames) {
  try {
    std::vector<uint8_t> frame(static_cast<size_t>(frame_size(width, height)));
    for (int64_t i = frames.read(frame); i >= 0; i = frames.read(frame)) {
      frames.print(i, detector.detect(view_of(frame, width, height)).size());
    }
  } catch (...) {
    frames.stop(std::current_exception());
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t width = argc > 3 ? number(argv[2]) : 0;
  const int64_t height = argc > 3 ? number(argv[3]) : 0;
  const int64_t threads = argc > 4 ? number(argv[4]) : 1;
  if (argc > 5 || width == 0 || width > 1 << 14 || height == 0 || height > 1 << 14 || threads == 0) {
    std::cerr << "usage: video_frames ARTIFACT WIDTH HEIGHT [THREADS]\n";
    return 2;
  }
  try {
    const lensbox::Detector detector = lensbox::Detector::load(argv[1]);
    Frames frames;
    {
      std::vector<std::jthread> workers;
      for (int64_t i = 0; i < threads; ++i)
        workers.emplace_back([&] { detect_frames(detector, width, height, frames); });
    }
    if (frames.failure()) std::rethrow_exception(frames.failure());
    return 0;
  } catch (const lensbox::Error& error) {
    std::cerr << error.what() << '\n';
    return static_cast<int>(error.code());
  }
}
