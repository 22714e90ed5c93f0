#include "read_ahead.h"

#include <lensbox/image_io.h>

#include <chrono>
#include <string>

#include "temporary_folder.h"

namespace {

namespace fs = std::filesystem;

class ReadAheadFiles : public TemporaryFolder {
 protected:
  // Pictures that are told apart by their widths, 1, 2, ...
  std::vector<fs::path> pictures(int count) const {
    std::vector<fs::path> files;
    for (int width = 1; width <= count; ++width) {
      files.push_back(folder_ / (std::to_string(width) + ".png"));
      lensbox::write_png(files.back(), lensbox::Image{width, 2, 1, std::vector<uint8_t>(size_t{2} * width)});
    }
    return files;
  }
};

TEST_F(ReadAheadFiles, ComeInOrderWithTheirErrors) {
  std::vector<fs::path> files = pictures(20);
  fs::remove(files[7]);
  for (const size_t threads : {1, 3, 30}) {
    lensbox::ReadAhead reader(files, {}, threads, 4);
    for (int i = 0; i < 20; ++i) {
      const auto outcome = reader.next();
      if (i == 7) {
        ASSERT_TRUE(std::holds_alternative<lensbox::InputError>(outcome));
        EXPECT_NE(std::string(std::get<lensbox::InputError>(outcome).what()).find("8.png: no such file"),
                  std::string::npos);
      } else {
        ASSERT_TRUE(std::holds_alternative<lensbox::Photo>(outcome)) << i;
        EXPECT_EQ(std::get<lensbox::Photo>(outcome).width, i + 1);
      }
    }
  }
}

TEST_F(ReadAheadFiles, NoMoreThanAllowedAreRead) {
  const std::vector<fs::path> files = pictures(8);
  lensbox::ReadAhead reader(files, {}, 3, 2);
  reader.next();
  // One was taken, so two more may have been read: time for all of them.
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  for (size_t i = 3; i < files.size(); ++i) {
    fs::remove(files[i]);
  }
  for (size_t i = 1; i < files.size(); ++i) {
    EXPECT_EQ(std::holds_alternative<lensbox::Photo>(reader.next()), i < 3) << i;
  }
}

TEST_F(ReadAheadFiles, NeedNotBeTaken) {
  const std::vector<fs::path> files = pictures(50);
  for (const int taken : {0, 1, 10}) {
    lensbox::ReadAhead reader(files, {}, 2, 5);
    for (int i = 0; i < taken; ++i) {
      reader.next();
    }
  }
}

TEST_F(ReadAheadFiles, MayBeNone) {
  lensbox::ReadAhead reader({}, {}, 0, 2);
}

}  // namespace
