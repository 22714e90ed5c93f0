#include "detect/read_ahead.h"

#include <string>

#include "png_file.h"
#include "temporary_folder.h"

namespace {

namespace fs = std::filesystem;

const lensbox::Reading kGrayReading{.canvas = {.height = 8, .width = 8, .channels = 1, .fill = 0}};

class ReadAheadFiles : public TemporaryFolder {
 protected:
  // Pictures that are told apart by their widths, 1, 2, ...
  std::vector<fs::path> pictures(int count) const {
    std::vector<fs::path> files;
    for (int width = 1; width <= count; ++width) {
      files.push_back(write(std::to_string(width) + ".png", png_file(static_cast<uint32_t>(width), 2, 1)));
    }
    return files;
  }
};

TEST_F(ReadAheadFiles, ComeInOrderWithTheirErrors) {
  std::vector<fs::path> files = pictures(20);
  fs::remove(files[7]);
  for (const size_t threads : {1, 3, 30}) {
    lensbox::ReadAhead reader(files, kGrayReading, threads, 4);
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

TEST_F(ReadAheadFiles, NeedNotBeTaken) {
  const std::vector<fs::path> files = pictures(50);
  for (const int taken : {0, 1, 10}) {
    lensbox::ReadAhead reader(files, kGrayReading, 2, 5);
    for (int i = 0; i < taken; ++i) {
      reader.next();
    }
  }
}

TEST_F(ReadAheadFiles, MayBeNone) {
  lensbox::ReadAhead reader({}, kGrayReading, 0, 2);
}

}  // namespace
