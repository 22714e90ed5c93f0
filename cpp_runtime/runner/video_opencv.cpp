// liblensbox_video.so, built where OpenCV is found.

#include <memory>
#include <opencv2/videoio.hpp>
#include <vector>

#include "video_plugin.h"

namespace {

class OpenCvVideo final : public Video {
 public:
  OpenCvVideo(cv::VideoCapture capture, size_t slots) : capture_(std::move(capture)), frames_(slots) {}

  std::optional<lensbox::ImageView> read(size_t slot) override {
    cv::Mat& frame = frames_.at(slot);
    if (!capture_.read(frame)) return std::nullopt;
    return lensbox::ImageView{
        .data = frame.data,
        .width = frame.cols,
        .height = frame.rows,
        .stride = static_cast<int64_t>(frame.step[0]),
        .format = frame.channels() == 1 ? lensbox::PixelFormat::kGray8 : lensbox::PixelFormat::kBgr8};
  }

 private:
  cv::VideoCapture capture_;
  std::vector<cv::Mat> frames_;
};

}  // namespace

extern "C" __attribute__((visibility("default"))) Video* lensbox_open_video(const char* file, int camera,
                                                                            size_t slots) {
  cv::VideoCapture capture = camera >= 0 ? cv::VideoCapture(camera) : cv::VideoCapture(file);
  if (!capture.isOpened()) return nullptr;
  return std::make_unique<OpenCvVideo>(std::move(capture), slots).release();
}
