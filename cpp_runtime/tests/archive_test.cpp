#include "file/archive.h"

#include <zlib.h>

#include "helpers.h"

namespace {

using lensbox::Archive;
using lensbox::ArchiveError;

std::string number(uint64_t value, int size) {
  std::string bytes;
  for (int i = 0; i < size; ++i, value >>= 8) {
    bytes += static_cast<char>(value);
  }
  return bytes;
}

struct Record {
  std::string name, bytes;
};

// Write an archive as zip tools do. method: 0 stored, 8 deflated. in_64: whether sizes and offsets are in the
// fields of 64 bits.
std::string archive_of(const std::vector<Record>& records, uint64_t method = 0, bool in_64 = false,
                       const std::string& comment = "") {
  std::string bytes, directory;
  for (const auto& [name, plain] : records) {
    std::string packed = plain;
    if (method == 8) {
      packed.assign(plain.size() + 100, '\0');
      z_stream stream{};
      deflateInit2(&stream, 6, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(plain.data()));
      stream.avail_in = static_cast<uInt>(plain.size());
      stream.next_out = reinterpret_cast<Bytef*>(packed.data());
      stream.avail_out = static_cast<uInt>(packed.size());
      deflate(&stream, Z_FINISH);
      packed.resize(stream.total_out);
      deflateEnd(&stream);
    }
    const uint64_t sum = crc32_z(0, reinterpret_cast<const Bytef*>(plain.data()), plain.size());
    const std::string extra = in_64 ? number(1, 2) + number(24, 2) + number(plain.size(), 8) +
                                          number(packed.size(), 8) + number(bytes.size(), 8)
                                    : "";
    const auto narrow = [&](uint64_t value) { return number(in_64 ? UINT32_MAX : value, 4); };
    const std::string shared = number(method, 2) + number(0, 4) + number(sum, 4);
    directory += "PK\1\2" + number(20, 2) + number(20, 2) + number(0, 2) + shared + narrow(packed.size()) +
                 narrow(plain.size()) + number(name.size(), 2) + number(extra.size(), 2) + number(0, 10) +
                 narrow(bytes.size()) + name + extra;
    bytes += "PK\3\4" + number(20, 2) + number(0, 2) + shared + number(packed.size(), 4) +
             number(plain.size(), 4) + number(name.size(), 2) + number(0, 2) + name + packed;
  }
  const uint64_t begin = bytes.size();
  bytes += directory;
  if (in_64) {
    const uint64_t end = bytes.size();
    bytes += "PK\6\6" + number(44, 8) + number(45, 4) + number(0, 8) + number(records.size(), 8) +
             number(records.size(), 8) + number(directory.size(), 8) + number(begin, 8);
    bytes += "PK\6\7" + number(0, 4) + number(end, 8) + number(1, 4);
  }
  const auto narrow = [&](uint64_t value, int size) { return number(in_64 ? UINT64_MAX : value, size); };
  return bytes + "PK\5\6" + number(0, 4) + narrow(records.size(), 2) + narrow(records.size(), 2) +
         narrow(directory.size(), 4) + narrow(begin, 4) + number(comment.size(), 2) + comment;
}

const std::vector<Record> kRecords{{"net/version", "3\n"}, {"net/data/0", "1234"}, {"net/empty", ""}};

TEST(Archive, ReadsNamesAndRecords) {
  for (const bool in_64 : {false, true}) {
    const std::string bytes = archive_of(kRecords, 0, in_64, "a comment");
    const Archive archive(bytes);
    EXPECT_EQ(archive.names(), (std::vector<std::string>{"version", "data/0", "empty"}));
    EXPECT_EQ(archive.record("data/0"), "1234");
    EXPECT_EQ(archive.record("empty"), "");
    EXPECT_FALSE(archive.has("data/1"));
    archive.check_sums();
    expect_error<ArchiveError>([&] { archive.record("data/1"); }, {"holds no data/1"});
  }
}

TEST(Archive, InflatesARecordToItsSizeOnly) {
  std::string bytes = archive_of(kRecords, 8);
  const Archive archive(bytes);
  EXPECT_EQ(archive.inflated("data/0"), "1234");
  EXPECT_EQ(archive.inflated("empty"), "");
  expect_error<ArchiveError>([&] { archive.record("data/0"); }, {"data/0", "without compression"});
  const size_t size = bytes.find("net/data/0", bytes.find("PK\1\2")) - 22;  // in the directory
  ASSERT_EQ(bytes[size], 4);
  for (const char other : {'\3', '\5'}) {
    bytes[size] = other;
    expect_error<ArchiveError>([&] { Archive(bytes).inflated("data/0"); }, {"does not inflate"});
  }
}

TEST(Archive, FindsADamagedRecord) {
  std::string bytes = archive_of(kRecords);
  bytes[bytes.find("1234")] = '2';
  expect_error<ArchiveError>([&] { Archive(bytes).check_sums(); }, {"data/0 is damaged", "CRC-32"});
}

TEST(Archive, RefusesOtherDirectories) {
  const auto refused = [](const std::string& bytes, const char* reason) {
    expect_error<ArchiveError>([&] { const Archive archive(bytes); }, {reason});
  };
  const std::string good = archive_of(kRecords);
  refused("", "no directory");
  refused(good + "x", "no directory");
  refused(archive_of({}), "no version");
  refused(archive_of({{"net/data", "1"}}), "no version");
  refused(archive_of({{"net/version", "3"}, {"other/data", "1"}}), "more than one folder: other/data");
  const auto changed = [&](size_t place, const std::string& other) {
    std::string bytes = good;
    return bytes.replace(place, other.size(), other);
  };
  const size_t end = good.rfind("PK\5\6");
  refused(changed(end + 10, number(2, 2)), "must have all records");
  refused(changed(end + 10, number(4, 2)), "must have all records");
  refused(changed(end + 12, number(UINT32_MAX, 4)), "must lie within the file");
  refused(changed(end + 16, number(good.size(), 4)), "must lie within the file");
  const size_t entry = good.find("PK\1\2");
  refused(changed(entry + 28, number(UINT16_MAX, 2)), "must lie within the file");
  refused(changed(entry + 8, number(1, 2)), "encrypted");
}

TEST(Archive, RefusesARecordThatIsNotWhereTheDirectorySays) {
  std::string bytes = archive_of(kRecords);
  const size_t offset = bytes.find("PK\1\2") + 42;
  for (const auto& [place, reason] : {std::pair<uint64_t, const char*>{1, "must have a header"},
                                      {bytes.size() - 10, "must lie within the file"}}) {
    bytes.replace(offset, 4, number(place, 4));
    expect_error<ArchiveError>([&] { Archive(bytes).record("version"); }, {"the record version", reason});
  }
}

}  // namespace
