// What the saving and the loading side of checkpoints share: names and the manifest's own hash.
#pragma once

#include <string>
#include <string_view>

#include "base/file.h"

namespace tessera {

// "step-000001000".
std::string step_folder_name(std::int64_t step);

// The text of MANIFEST.sha256, in the form of the sha256sum program.
std::string manifest_hash_line(std::string_view manifest);

// The manifest of a checkpoint folder, if it agrees with its hash; throws UserError (BadData) that says why
// not.
std::string read_manifest_text(Vfs& vfs, const std::string& path);

}  // namespace tessera
