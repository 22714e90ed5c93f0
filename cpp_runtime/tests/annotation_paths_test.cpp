#include "annotation_paths.h"

#include "expect_error.h"
#include "temporary_folder.h"
#include "usage_error.h"

namespace {

namespace fs = std::filesystem;
using AnnotationPaths = TemporaryFolder;

std::vector<fs::path> paths_for(const std::string& annotate, const std::vector<fs::path>& images) {
  return annotation_paths(annotate, list_images(images, /*recursive=*/true, annotate));
}

TEST_F(AnnotationPaths, AFileForOneImage) {
  EXPECT_EQ(paths_for("out.png", {"a.jpg"}), std::vector<fs::path>{"out.png"});
}

TEST_F(AnnotationPaths, AFolderForSeveral) {
  EXPECT_EQ(paths_for("out/", {"a.jpg", "b/c.png"}), (std::vector<fs::path>{"out/a.png", "out/c.png"}));
}

TEST_F(AnnotationPaths, AnExistingFolderNeedsNoSlash) {
  EXPECT_EQ(paths_for(folder_.string(), {"a.jpg"}), std::vector<fs::path>{folder_ / "a.png"});
}

TEST_F(AnnotationPaths, RefusesOneFileForSeveral) {
  expect_error<UsageError>([] { paths_for("out.png", {"a.jpg", "b.jpg"}); }, {"--annotate", "out.png"});
}

TEST_F(AnnotationPaths, RefusesOtherFormats) {
  expect_error<UsageError>([] { paths_for("out.jpg", {"a.jpg"}); }, {"--annotate", ".png", "out.jpg"});
}

TEST_F(AnnotationPaths, RefusesToWriteTwice) {
  expect_error<UsageError>([] { paths_for("out/", {"a/x.jpg", "b/x.png"}); }, {"out/x.png", "twice"});
}

TEST_F(AnnotationPaths, RefusesToOverwriteAnImage) {
  const fs::path image = write("x.png", "");
  const auto same = folder_ / "." / "x.png";
  expect_error<UsageError>([&] { paths_for(same.string(), {image}); }, {"over an image"});
}

TEST_F(AnnotationPaths, AFolderIsMirrored) {
  write("b.png", "");
  write("a.jpg", "");
  write("a.png", "");
  const fs::path drawn = folder_ / "drawn";
  EXPECT_EQ(paths_for(drawn.string() + "/", {folder_}),
            (std::vector<fs::path>{drawn / "a.jpg.png", drawn / "a.png.png", drawn / "b.png.png"}));
}

TEST_F(AnnotationPaths, NothingIsWrittenOverAnImageOfAFolder) {
  write("a.png", "");
  write("a.png.png", "");
  expect_error<UsageError>([&] { paths_for(folder_.string(), {folder_ / "a.png", folder_}); },
                           {"--annotate must be another folder"});
}

TEST_F(AnnotationPaths, AnEmptyFolderIsNotDrawn) {
  fs::create_directory(folder_ / "empty");
  const auto images = list_images({folder_ / "empty"}, /*recursive=*/false);
  ASSERT_EQ(images.size(), 1U);
  EXPECT_NE(images[0].fault.find("no file in it ends with"), std::string::npos);
  EXPECT_NO_THROW(annotation_paths("out/", images));
}

}  // namespace
