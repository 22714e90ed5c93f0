#pragma once

// Lets this process keep the memory that it frees, for the next call, in place of handing large blocks back
// to the system, whose pages then have to be faulted in and zeroed again. Does nothing where the C library is
// not glibc, or GLIBC_TUNABLES says what it is to do. To be called before much memory is in use.
void keep_freed_memory();
