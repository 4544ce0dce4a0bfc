// Checks a SentencePiece model before the library sees it: the library trusts indices inside the file.
#pragma once

#include <string>
#include <string_view>

namespace tessera::data {

constexpr std::size_t kMaxModelBytes = 256 << 20;

// Throws UserError (BadData) that names `path` unless the bytes are a model that SentencePiece can use safely
// and whose special ids are ours.
void check_model(std::string_view bytes, const std::string& path);

}  // namespace tessera::data
