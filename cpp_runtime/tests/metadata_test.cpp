#include <lensbox/error.h>
#include <lensbox/metadata.h>

#include "expect_error.h"
#include "temporary_folder.h"

namespace {

constexpr const char* kGood = R"JSON({
  "format_version": 1, "torch_version": "2.13.0", "ops": ["a::b() -> ()"], "methods": ["detect"],
  "defaults": {"score_threshold": 0.5, "iou_threshold": 1}, "name": "x"})JSON";

lensbox::Metadata parse(const std::string& text) {
  return lensbox::parse_metadata(text, "model.pt");
}

void expect_refused(const std::string& text, std::initializer_list<const char*> parts) {
  expect_error<lensbox::ArtifactError>([&] { parse(text); }, parts);
}

std::string changed(const std::string& from, const std::string& to) {
  std::string text = kGood;
  return text.replace(text.find(from), from.size(), to);
}

TEST(ParseMetadata, ReadsTheFields) {
  const auto metadata = parse(kGood);
  EXPECT_EQ(metadata.torch_version, "2.13.0");
  EXPECT_EQ(metadata.ops, std::vector<std::string>{"a::b() -> ()"});
  EXPECT_EQ(metadata.methods, std::vector<std::string>{"detect"});
  EXPECT_EQ(metadata.score_threshold, 0.5);
  EXPECT_EQ(metadata.iou_threshold, 1.0);
  EXPECT_EQ(metadata.document["name"], "x");
}

TEST(ParseMetadata, RefusesANewerFormat) {
  expect_refused(changed("\"format_version\": 1", "\"format_version\": 2, \"lensbox_version\": \"0.9\""),
                 {"model.pt", "format version 2", "up to 1", "0.9"});
}

TEST(ParseMetadata, NamesAMissingField) {
  expect_refused(changed("\"ops\"", "\"opts\""), {"damaged", "ops"});
}

TEST(ParseMetadata, RefusesAFieldOfAnotherType) {
  expect_refused(changed("[\"detect\"]", "3"), {"damaged"});
}

TEST(ParseMetadata, RefusesWhatIsNotJson) {
  expect_refused("{", {"model.pt", "damaged"});
}

using ReadMetadata = TemporaryFolder;

TEST_F(ReadMetadata, RefusesWhatIsNoArchive) {
  const auto read = [](const std::filesystem::path& path) {
    return [path] { lensbox::read_metadata(path); };
  };
  expect_error<lensbox::ArtifactError>(read(folder_ / "no.pt"), {"no.pt", "no such file"});
  expect_error<lensbox::ArtifactError>(read(folder_), {"not a file"});
  expect_error<lensbox::ArtifactError>(read(write("x.pt", "text")), {"x.pt", "not a TorchScript file"});
  expect_error<lensbox::ArtifactError>(read(write("e.pt", "")), {"e.pt", "not a TorchScript file"});
}

}  // namespace
