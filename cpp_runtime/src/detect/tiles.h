#pragma once

#include <lensbox/torch/tensors.h>

#include <vector>

namespace lensbox {

// Tiles of large photographs, by the rule of docs/tiles.md, which Python has in runtime/tiles.py.

// Throw InputError for a specification out of its range.
void check_tiles(const TileSpec& spec);

// Return the views of a photograph: the whole one first, if asked for, then the tiles row by row, without
// copies. A photograph that fits into one tile is one view. Throws InputError for a photograph that is not at
// full size, and for more than 4096 tiles.
std::vector<Photo> cut_into_tiles(const Photo& photo, const Canvas& canvas, const TileSpec& spec);

// Return the detections of a photograph whose views these are. Throws as detect_photos does.
std::vector<Detection> detect_views(const Detector& detector, const std::vector<Photo>& views,
                                    const Thresholds& thresholds);

// Return the detections of a photograph from the detections in its views, best first.
std::vector<Detection> merge_tiles(std::vector<std::vector<Detection>> found, const std::vector<Photo>& views,
                                   double iou_threshold);

}  // namespace lensbox
