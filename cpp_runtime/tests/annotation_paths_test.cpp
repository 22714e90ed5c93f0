#include "annotation_paths.h"

#include "expect_error.h"
#include "temporary_folder.h"

namespace {

namespace fs = std::filesystem;
using AnnotationPaths = TemporaryFolder;

TEST_F(AnnotationPaths, AFileForOneImage) {
  EXPECT_EQ(annotation_paths("out.png", {"a.jpg"}), std::vector<fs::path>{"out.png"});
}

TEST_F(AnnotationPaths, AFolderForSeveral) {
  EXPECT_EQ(annotation_paths("out/", {"a.jpg", "b/c.png"}),
            (std::vector<fs::path>{"out/a.png", "out/c.png"}));
}

TEST_F(AnnotationPaths, AnExistingFolderNeedsNoSlash) {
  EXPECT_EQ(annotation_paths(folder_.string(), {"a.jpg"}), std::vector<fs::path>{folder_ / "a.png"});
}

TEST_F(AnnotationPaths, RefusesOneFileForSeveral) {
  expect_error<UsageError>([] { annotation_paths("out.png", {"a.jpg", "b.jpg"}); },
                           {"--annotate", "out.png"});
}

TEST_F(AnnotationPaths, RefusesOtherFormats) {
  expect_error<UsageError>([] { annotation_paths("out.jpg", {"a.jpg"}); }, {"--annotate", ".png", "out.jpg"});
}

TEST_F(AnnotationPaths, RefusesToWriteTwice) {
  expect_error<UsageError>([] { annotation_paths("out/", {"a/x.jpg", "b/x.png"}); }, {"out/x.png", "twice"});
}

TEST_F(AnnotationPaths, RefusesToOverwriteAnImage) {
  const fs::path image = write("x.png", "");
  const auto same = folder_ / "." / "x.png";
  expect_error<UsageError>([&] { annotation_paths(same.string(), {image}); }, {"over an image"});
}

}  // namespace
