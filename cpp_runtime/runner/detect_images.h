#pragma once

#include "commands.h"

// Finds objects in the files and folders of options.images.
ExitCode detect_images(const ModelOptions& model, const DetectOptions& options);
