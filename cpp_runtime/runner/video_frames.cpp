#include <dlfcn.h>

#include <charconv>
#include <filesystem>
#include <utility>

#include "commands.h"
#include "frames.h"
#include "video_plugin.h"

namespace {

namespace fs = std::filesystem;

OpenVideo load_plugin() {
  std::error_code error;
  const fs::path library = fs::read_symlink("/proc/self/exe", error).parent_path() / kVideoLibrary;
  if (!fs::exists(library, error)) {
    throw UsageError(
        "--video: this program was built without OpenCV. Build it where OpenCV's videoio is found (Debian, "
        "Ubuntu: apt-get install libopencv-videoio-dev), or let another program, such as ffmpeg, send frames "
        "to --raw");
  }
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* const function = handle == nullptr ? nullptr : dlsym(handle, kOpenVideo);
  if (function == nullptr) throw UsageError(std::string("--video: ") + dlerror());
  return reinterpret_cast<OpenVideo>(function);
}

// Return -1 unless the name is a number.
int camera_number(const std::string& name) {
  int number = -1;
  const char* const end = name.data() + name.size();
  const auto [last, error] = std::from_chars(name.data(), end, number);
  return error == std::errc() && last == end ? number : -1;
}

class VideoFrames final : public FrameSource {
 public:
  VideoFrames(std::unique_ptr<Video> video, const lensbox::Reading& reading, const StopSignal& stop)
      : video_(std::move(video)), reading_(reading), stop_(stop) {}

  std::optional<lensbox::Photo> read() override {
    if (stop_.requested()) return std::nullopt;
    const auto view = video_->read();
    if (!view) return std::nullopt;
    return lensbox::to_photo(*view, reading_);
  }

 private:
  std::unique_ptr<Video> video_;
  lensbox::Reading reading_;
  const StopSignal& stop_;
};

}  // namespace

std::unique_ptr<FrameSource> open_video(const std::string& name, const lensbox::Reading& reading,
                                        const StopSignal& stop) {
  std::unique_ptr<Video> video(load_plugin()(name.c_str(), camera_number(name)));
  if (!video) throw lensbox::InputError("video " + name + ": cannot be opened");
  return std::make_unique<VideoFrames>(std::move(video), reading, stop);
}
