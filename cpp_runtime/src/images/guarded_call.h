#pragma once

#include <csetjmp>

namespace lensbox {

// Calls of a C library whose error callback must not return: the callback leaves by stop(), and run() then
// returns false. Code inside run(), callbacks included, must own no object with a destructor, because longjmp
// passes over it; buffers and messages belong to the caller of run().
class GuardedCall {
 public:
  template <class Function>
  bool run(Function function) {
    if (setjmp(jump_) != 0) return false;
    function();
    return true;
  }

  [[noreturn]] void stop() { std::longjmp(jump_, 1); }

 private:
  std::jmp_buf jump_;
};

}  // namespace lensbox
