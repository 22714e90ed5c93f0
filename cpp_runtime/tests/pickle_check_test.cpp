#include "pickle_check.h"

#include <gtest/gtest.h>
#include <torch/csrc/jit/serialization/pickle.h>

namespace {

using namespace std::string_literals;

// Records data/0 of 16 bytes and data/1 of none.
std::string fault(const std::string& pickle) {
  const auto record_size = [](const std::string& name) -> std::optional<uint64_t> {
    if (name == "data/0") return 16;
    if (name == "data/1") return 0;
    return std::nullopt;
  };
  return lensbox::pickle_fault(pickle, "data", record_size).value_or("");
}

void expect_refused(const std::string& pickle, const std::string& part) {
  EXPECT_NE(fault(pickle).find(part), std::string::npos) << fault(pickle);
}

std::string text(const std::string& value) {
  std::string pickle = "X";
  for (int i = 0; i < 4; ++i) {
    pickle += static_cast<char>(value.size() >> (8 * i) & 0xff);
  }
  return pickle + value;
}

std::string integer(int64_t value) {
  std::string bytes = "\x8a\x08";
  for (int i = 0; i < 8; ++i) {
    bytes += static_cast<char>(value >> (8 * i) & 0xff);
  }
  return bytes;
}

std::string storage(const std::string& type, const std::string& record, int64_t count) {
  return "("s + text("storage") + "ctorch\n" + type + "\n"s + text(record) + text("cpu") + integer(count) +
         "tQ";
}

std::string tensor(const std::string& storage, int64_t offset, const std::vector<int64_t>& sizes,
                   const std::vector<int64_t>& strides) {
  std::string pickle = "ctorch._utils\n_rebuild_tensor_v2\n(" + storage + integer(offset);
  for (const auto& numbers : {sizes, strides}) {
    pickle += "(";
    for (const int64_t number : numbers) {
      pickle += integer(number);
    }
    pickle += "t";
  }
  return "\x80\x02"s + pickle + "\x89" + "ccollections\nOrderedDict\n)RtR.";
}

TEST(PickleFault, AcceptsWhatTorchWrites) {
  c10::Dict<std::string, int64_t> dict;
  dict.insert("a", int64_t{1} << 40);
  const auto written = torch::jit::pickle(c10::ivalue::Tuple::create(
      {c10::IValue(dict), c10::List<double>({1.5, -2.0}), c10::IValue(), true, -3, 70'000, "text"s,
       c10::ivalue::Tuple::create({c10::List<c10::IValue>(c10::IntType::get())})}));
  EXPECT_EQ(fault({written.begin(), written.end()}), "");
}

TEST(PickleFault, ATensorLiesInsideItsRecord) {
  EXPECT_EQ(fault(tensor(storage("FloatStorage", "0", 4), 0, {2, 2}, {2, 1})), "");
  EXPECT_EQ(fault(tensor(storage("FloatStorage", "1", 0), 0, {0, 1 << 20}, {1, 1})), "");
  EXPECT_EQ(fault(tensor(storage("FloatStorage", "0", 4), 3, {}, {})), "");
  expect_refused(tensor(storage("FloatStorage", "0", 5), 0, {4}, {1}), "5 numbers of 4 bytes, got 16 bytes");
  expect_refused(tensor(storage("DoubleStorage", "0", 3), 0, {2}, {1}), "3 numbers of 8 bytes");
  expect_refused(tensor(storage("FloatStorage", "0", INT64_MAX), 0, {4}, {1}), "numbers of 4 bytes");
  expect_refused(tensor(storage("FloatStorage", "0", -1), 0, {4}, {1}), "numbers of 4 bytes");
  expect_refused(tensor(storage("FloatStorage", "2", 4), 0, {4}, {1}), "data/2, which is not there");
  expect_refused(tensor(storage("FloatStorage", "0", 4), 1, {4}, {1}), "inside its storage of 4");
  expect_refused(tensor(storage("FloatStorage", "0", 4), 4, {}, {}), "inside its storage of 4");
  expect_refused(tensor(storage("FloatStorage", "0", 4), 0, {2, 2}, {3, 1}), "inside its storage of 4");
  expect_refused(tensor(storage("FloatStorage", "0", 4), 0, {INT64_MAX, INT64_MAX}, {INT64_MAX, 2}),
                 "inside");
  expect_refused(tensor(storage("FloatStorage", "0", 4), 0, {4}, {-1}), "sizes or strides");
  expect_refused(tensor(storage("FloatStorage", "0", 4), 0, {4}, {}), "sizes or strides");
  expect_refused(tensor(storage("QInt8Storage", "0", 4), 0, {4}, {1}), "QInt8Storage");
}

TEST(PickleFault, BoundsTheNesting) {
  EXPECT_EQ(fault("\x80\x02)"s + std::string(63, '\x85') + "."), "");
  expect_refused(")"s + std::string(64, '\x85') + ".", "64 levels");
  expect_refused(")"s + std::string(200'000, '\x85') + ".", "64 levels");
  expect_refused(std::string(200'000, ']') + std::string(199'999, 'a') + ".", "64 levels");
  // A list that contains itself.
  expect_refused("]q\0h\0a."s, "no new list");
}

TEST(PickleFault, BoundsTheTypesThatTorchParses) {
  const auto with_type = [](const std::string& type) {
    return "ctorch.jit._pickle\nrestore_type_tag\n(]"s + text(type) + "tR.";
  };
  EXPECT_EQ(fault(with_type("List[Dict[str, Tuple[int, __torch__.A]]]")), "");
  std::string deep;
  for (int i = 0; i < 17; ++i) {
    deep += "List[";
  }
  expect_refused(with_type(deep), "List[List[");
  expect_refused(with_type("\"a\""), "type");
}

TEST(PickleFault, RefusesForeignNames) {
  expect_refused("cos\nsystem\n("s + text("true") + "tR.", "os system");
  expect_refused("ctorch\nsave\n)R.", "torch save");
  expect_refused("c__torch__.torch.classes.quantized\nX\n)\x81Nb.", "classes");
  EXPECT_EQ(fault("c__torch__.a.b\nC\n)\x81(Nt"
                  "b."),
            "");
}

TEST(PickleFault, AcceptsValuesOfEnumerations) {
  EXPECT_EQ(fault("c__torch__\nSide\nK\2R."), "");
  EXPECT_EQ(fault("c__torch__\nSide\n" + text("left") + "R."), "");
  expect_refused("c__torch__\nSide\nc__torch__\nSide\nR.", "where a value must be");
  expect_refused("c__torch__\nSide\n(R.", "its stack is empty too early");
}

TEST(PickleFault, RefusesDamage) {
  for (const std::string& pickle : {""s, "."s, "N"s, "NN."s, "N.N"s, "(."s, "t."s, "R."s, "b."s, "q\0."s,
                                    "h\0N."s, "Nq\5."s, "Nr\xff\xff\xff\xff."s, "X\xff\xff\xff\xff."s,
                                    "\x8a\x09"
                                    "123456789."s,
                                    "}(Nu."s, "X\1\0\0\0\xff."s, "\x93."s, "cname"s}) {
    EXPECT_NE(fault(pickle), "") << testing::PrintToString(pickle);
  }
}

}  // namespace
