#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <lensbox/error.h>
#include <lensbox/torch/program.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "file/artifact_file.h"
#include "helpers.h"

// torch's reader of zip files keeps the directory of a file that it refuses. AddressSanitizer asks here what
// to forgive.
extern "C" __attribute__((visibility("default"))) const char* __lsan_default_suppressions() {
  return "leak:mz_zip_reader_init\n";
}

namespace {

using lensbox::Program;

// tests/helpers/small_program.py has the network.
std::vector<std::filesystem::path> program_files() {
  const std::filesystem::directory_iterator listed(LENSBOX_PROGRAMS);
  std::vector<std::filesystem::path> files(begin(listed), end(listed));
  std::ranges::sort(files);
  return files;
}

std::string content_of(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

std::string replaced(std::string text, const std::string& old, const std::string& by) {
  const size_t position = text.find(old);
  EXPECT_NE(position, std::string::npos) << old;
  EXPECT_EQ(old.size(), by.size());
  return text.replace(position, old.size(), by);
}

// Return the places of a text.
std::vector<size_t> places_of(const std::string& text, const std::string& bytes) {
  std::vector<size_t> places;
  for (size_t at = bytes.find(text); at != std::string::npos; at = bytes.find(text, at + 1)) {
    places.push_back(at);
  }
  return places;
}

// Return an archive whose directory says that no CRC-32 was computed.
std::string without_sums(std::string archive) {
  for (const size_t entry : places_of("PK\x01\x02", archive)) {
    archive.replace(entry + 16, 4, 4, '\0');
  }
  return archive;
}

using ProgramFile = TemporaryFolder;

TEST(Program, RefusesOtherInputs) {
  const Program program = Program::load(program_files().at(0));
  const auto run = [&](std::vector<at::Tensor> inputs) { return [&, inputs] { program.run(inputs); }; };
  expect_error<lensbox::InputError>(run({}), {"must be 1 tensors, got 0"});
  expect_error<lensbox::InputError>(run({at::zeros({1, 3, 8, 9}, at::kLong)}),
                                    {"inputs[0] (x)", "Float", "Long"});
  for (const auto& sizes : {std::vector<int64_t>{3, 8, 9}, {1, 4, 8, 9}, {1, 3, 8, 8}}) {
    expect_error<lensbox::InputError>(run({at::zeros(sizes)}), {"inputs[0] (x)", ", 3, "});
  }
  expect_error<lensbox::InputError>(run({at::zeros({65, 3, 8, 9})}),
                                    {"x.shape[0] <= 64, got x.shape[0] = 65"});
}

TEST_F(ProgramFile, IsRefusedForWhatItCannotCompute) {
  const std::string good = without_sums(content_of(program_files().at(0)));
  const auto refusal = [&](const std::string& bytes, const char* reason) {
    const auto file = write("changed.pt2", bytes);
    expect_error<lensbox::ArtifactError>([&] { Program::load(file); }, {"changed.pt2", reason});
  };
  refusal(replaced(good, "\"major\": 8", "\"major\": 9"), "must be 8, got 9");
  refusal(replaced(good, "ops.aten.conv2d", "ops.aten.conv9d"), "a program must not call aten::conv9d");
  refusal(replaced(good, "_operator.mul", "_operator.xor"), "_operator.xor");
  refusal(replaced(good, "torch.ops.aten.conv2d.default", "torch.ops.higher_order_cond29"), "subgraphs");
  refusal(replaced(good, "\"as_ints\"", "\"as_what\""), "as_wha");
  refusal(replaced(good, "\"outputs\": [{\"as_tensor\": {\"name\": \"conv2d\"}}]",
                   "\"outputs\": []" + std::string(33, ' ')),
          "as many results as the op");
  refusal(replaced(good, "user_output", "user_change"), "user_change");
  refusal(replaced(good, "\"as_int\": 27}", "\"as_int\": 99}"), "must have");
  refusal("PK", "cannot be run as a program");
  refusal("", "is empty");
  expect_error<lensbox::ArtifactError>([&] { Program::load(folder_); }, {folder_.c_str()});
  const auto file = write("good.pt2", good);
  expect_error<lensbox::ArtifactError>([&] { Program::load(file, {.graph = "loss"}); },
                                       {"must be one of model"});
}

using Random = std::mt19937;

// Change a few bytes to others, some of them to characters of JSON.
void change_bytes(std::string& bytes, Random& random) {
  for (unsigned change = 0; change <= random() % 3; ++change) {
    char& byte = bytes[random() % bytes.size()];
    byte = random() % 2 == 0 ? static_cast<char>(byte ^ (1 << random() % 8)) : "09[]{}\",sf"[random() % 10];
  }
}

void cut(std::string& bytes, Random& random) {
  if (random() % 2 == 0) {
    bytes.resize(random() % bytes.size());
  } else {
    bytes.erase(random() % bytes.size(), 1 + random() % 64);
  }
}

// Give a field of the JSON the value of another field.
void change_field(std::string& bytes, Random& random) {
  const std::vector<size_t> fields = places_of("\": ", bytes);
  const auto value = [&] {
    const size_t begin = fields[random() % fields.size()] + 3;
    return std::pair(begin, bytes.find_first_of(",}]", begin) - begin);
  };
  const auto [to, length] = value();
  const auto [from, other_length] = value();
  std::string text =
      random() % 4 == 0 ? std::to_string(int64_t(random()) - INT32_MAX) : bytes.substr(from, other_length);
  text.resize(length, ' ');  // the offsets of the archive stay true
  bytes.replace(to, length, text);
}

// Let two names of the archive's directory stand for each other's entries.
void swap_entries(std::string& bytes, Random& random) {
  constexpr size_t kOffset = 42;  // of the entry, in the directory's record
  const std::vector<size_t> records = places_of("PK\x01\x02", bytes);
  const size_t one = records[random() % records.size()], other = records[random() % records.size()];
  const std::string offset = bytes.substr(one + kOffset, 4);
  bytes.replace(one + kOffset, 4, bytes, other + kOffset, 4);
  bytes.replace(other + kOffset, 4, offset);
}

// LENSBOX_DAMAGED_PROGRAMS: how many files of each.
class DamagedProgram : public TemporaryFolder {
 protected:
  // Load damaged files and let them compute. wanted: the results of those that do; none if any will do.
  void damage(const std::string& good, const std::vector<at::Tensor>& wanted = {}) {
    Random random(1);
    const char* const count = std::getenv("LENSBOX_DAMAGED_PROGRAMS");
    const int files = count == nullptr ? 80 : std::stoi(count);
    for (int i = 0; i < files; ++i) {
      std::string bytes = good;
      constexpr std::array kDamages{change_bytes, cut, change_field, swap_entries};
      kDamages[i % kDamages.size()](bytes, random);
      try {
        const Program program = Program::load(write("damaged.pt2", bytes));
        const auto found = program.run({input_});
        EXPECT_TRUE(wanted.empty() || (at::equal(found[0], wanted[0]) && at::equal(found[1], wanted[1])));
      } catch (const std::exception&) {
        ++refused_;
      }
    }
    RecordProperty("refused", refused_);
    EXPECT_GT(refused_, files / 4);
  }

  const at::Tensor input_ = at::arange(2 * 3 * 8 * 9, at::kFloat).sin().view({2, 3, 8, 9});
  int refused_ = 0;
};

TEST_F(DamagedProgram, IsRefusedOrComputesTheSame) {
  damage(content_of(program_files().at(0)), Program::load(program_files().at(0)).run({input_}));
}

TEST_F(DamagedProgram, NeverCrashesWithoutCheckSums) {
  damage(without_sums(content_of(program_files().at(0))));
}

}  // namespace
