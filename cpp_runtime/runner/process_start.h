#pragma once

#include <optional>

// To be called first of all in main.
void note_main_reached();

// Milliseconds from the start of the process to main: the dynamic linker, and what libraries do when they are
// loaded. Linux tells the start to 10 ms. Nothing where it cannot be read.
std::optional<double> milliseconds_to_main();
