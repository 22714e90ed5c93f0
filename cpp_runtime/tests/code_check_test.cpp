#include "code_check.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "op_names.h"

namespace {

std::string fault(const std::string& source, const std::vector<std::string>& declared_ops = {}) {
  return lensbox::code_fault(source, declared_ops).value_or("");
}

// The source must be refused with a message that has this part.
void expect_refused(const std::string& source, const std::string& part) {
  EXPECT_NE(fault(source).find(part), std::string::npos) << source << "\n  " << fault(source);
}

TEST(OpNames, AreSortedForBinarySearch) {
  EXPECT_TRUE(std::ranges::is_sorted(lensbox::kAllowedOps));
  EXPECT_TRUE(std::ranges::is_sorted(lensbox::kTorchNamespaces));
  EXPECT_GT(std::size(lensbox::kAllowedOps), 500);
}

TEST(CodeFault, AcceptsWhatADetectorIsMadeOf) {
  EXPECT_EQ(fault("class D(Module):\n"
                  "  __parameters__ = []\n"
                  "  n : Final[int] = 256\n"
                  "  def f(self: __torch__.torch.nn.x.D, x: Tensor) -> Tuple[Tensor, Optional[int]]:\n"
                  "    _0 = \"torch.save(\\\"{}\\\")\"\n"
                  "    y = torch.mul(torch.sub(x, 114.), 1.5e-05)\n"
                  "    if torch.ne(torch.dim(x), -4):\n"
                  "      ops.prim.RaiseException(torch.format(_0, 1), \"builtins.ValueError\")\n"
                  "    else:\n"
                  "      pass\n"
                  "    _1 = (getattr(self.blocks, \"0\")).forward(y, )\n"
                  "    return (ops.lensbox.giou(x, CONSTANTS.c0), annotate(List[int], []), x.shape, 1.)\n"),
            "");
}

TEST(CodeFault, NamesTheLineAndTheOp) {
  EXPECT_EQ(fault("x = 1\ny = torch.save(x, \"p\")\n"), "line 2: it uses torch.save");
  EXPECT_EQ(fault("ops.aten.from_file(\"p\")"), "line 1: it uses ops.aten.from_file");
}

TEST(CodeFault, RefusesEveryOtherWayToAnOp) {
  expect_refused("x.save(\"p\")", ".save");
  expect_refused("f = x.save", ".save");
  expect_refused("getattr(x, \"save\")(\"p\")", ".save");
  expect_refused("getattr(x, \"sa\" \"ve\")(\"p\")", "getattr");
  expect_refused("getattr(x, \"s\\x61ve\")(\"p\")", "getattr");
  expect_refused("g = getattr", "getattr");
  expect_refused("t = torch", "torch other than");
  expect_refused("torch . save(x, \"p\")", "torch.save");
  expect_refused("(torch).save(x, \"p\")", "torch other than");
  expect_refused("torch.autograd.save(x, \"p\")", "torch.autograd");
  expect_refused("o = ops", "ops other than");
  expect_refused("o = ops.aten", "ops other than");
  expect_refused("ops.aten.autograd.save(x, \"p\")", "ops.aten.autograd");
  expect_refused("ops.c10d.all_reduce(x)", "ops.c10d.all_reduce");
  expect_refused("ops.other.thing(x)", "ops.other.thing");
  expect_refused("fork(x)", "fork");
  expect_refused("__torch__.torch.classes.quantized.X()", "classes");
  expect_refused("t = __torch__.torch", "__torch__");
}

TEST(CodeFault, AnOpThatTheMetadataDeclareMayBeCalled) {
  const std::vector<std::string> declared = {"other::thing.overload(Tensor x) -> Tensor",
                                             "aten::save(Any x) -> ()"};
  EXPECT_EQ(fault("ops.other.thing(x)", declared), "");
  EXPECT_NE(fault("ops.other.thing2(x)", declared), "");
  EXPECT_NE(fault("ops.aten.save(x)", declared), "");
  EXPECT_NE(fault("torch.save(x)", declared), "");
}

TEST(CodeFault, ReadsNothingThatTorchCouldReadInAnotherWay) {
  for (const char* source :
       {"\"\"\"\n\"\"\"", "x = 'torch'", "x = \"a", "x = \"a\n\"", "# a\n", "x = 1  # type: int", "x = \\\n1",
        "x\t= 1", "x = \xc3\xa4", "x = 0x1f", "x = 1torch", "x = .5", "x = 1..save", "not inside",
        "a is nothing", "x = \"\\\n\"", "x = ?"}) {
    EXPECT_NE(fault(source), "") << source;
  }
  EXPECT_NE(fault(std::string("x = \"a\0\"", 9)), "");
}

TEST(CodeFault, RefusesWhatIsNestedTooDeeply) {
  EXPECT_EQ(fault("x = " + std::string(63, '(') + "1" + std::string(63, ')')), "");
  expect_refused("x = " + std::string(64, '(') + "1" + std::string(64, ')'), "too deeply");
  expect_refused("x = " + std::string(200'000, '('), "too deeply");
  expect_refused("x = " + std::string(200'000, '-') + "1", "too deeply");
  expect_refused("x = 1\n" + std::string(401, ' ') + "y = 1", "too deeply");
  std::string elifs = "if x:\n  pass\n";
  for (int i = 0; i < 5000; ++i) {
    elifs += "elif x:\n  pass\n";
  }
  expect_refused(elifs, "too deeply");
}

}  // namespace
