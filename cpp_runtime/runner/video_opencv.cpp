// liblensbox_video.so, built if OpenCV is found.

#include <memory>
#include <opencv2/videoio.hpp>

#include "video_plugin.h"

namespace {

class OpenCvVideo final : public Video {
 public:
  explicit OpenCvVideo(cv::VideoCapture capture) : capture_(std::move(capture)) {}

  std::optional<lensbox::ImageView> read() override {
    if (!capture_.read(frame_)) return std::nullopt;
    return lensbox::ImageView{
        .data = frame_.data,
        .width = frame_.cols,
        .height = frame_.rows,
        .stride = static_cast<int64_t>(frame_.step[0]),
        .format = frame_.channels() == 1 ? lensbox::PixelFormat::kGray8 : lensbox::PixelFormat::kBgr8};
  }

 private:
  cv::VideoCapture capture_;
  cv::Mat frame_;
};

}  // namespace

extern "C" __attribute__((visibility("default"))) Video* lensbox_open_video(const char* file, int camera) {
  cv::VideoCapture capture = camera >= 0 ? cv::VideoCapture(camera) : cv::VideoCapture(file);
  if (!capture.isOpened()) return nullptr;
  return std::make_unique<OpenCvVideo>(std::move(capture)).release();
}
