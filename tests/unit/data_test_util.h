// Helpers of the data tests: a folder that vanishes, files in it, and errors checked whole.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "tessera/data.h"
#include "tessera/error.h"
#include "tessera/tokenizer.h"

namespace tessera::testing {

inline std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

class TempFolder {
 public:
  TempFolder() {
    static int serial = 0;
    path_ = std::filesystem::temp_directory_path() /
            ("tessera_data_" + std::to_string(getpid()) + "_" + std::to_string(serial++));
    std::filesystem::create_directories(path_);
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  std::string path() const { return path_.string(); }

  // Writes a file and returns its path.
  std::string file(const std::string& name, const std::string& content) const {
    std::ofstream(path_ / name, std::ios::binary) << content;
    return (path_ / name).string();
  }

  // Every file with its content.
  std::map<std::string, std::string> contents() const {
    std::map<std::string, std::string> all;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path_)) {
      all[entry.path().string()] = entry.is_regular_file() ? read_file(entry.path().string()) : "";
    }
    return all;
  }

 private:
  std::filesystem::path path_;
};

// Runs `call`, which must throw a UserError with exactly this message and code and leave every file as it
// was.
template <class Call>
void expect_error(const TempFolder& folder, const std::string& message, ExitCode code, Call call) {
  const auto before = folder.contents();
  try {
    call();
    ADD_FAILURE() << "no error, expected: " << message;
  } catch (const UserError& error) {
    EXPECT_EQ(error.what(), message);
    EXPECT_EQ(error.code(), code) << message;
  }
  EXPECT_TRUE(folder.contents() == before) << "a file changed: " << message;
}

inline std::string gzip(const std::string& text) {
  z_stream state = {};
  deflateInit2(&state, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  std::string out(text.size() + 1000, '\0');
  state.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  state.avail_in = static_cast<uInt>(text.size());
  state.next_out = reinterpret_cast<Bytef*>(out.data());
  state.avail_out = static_cast<uInt>(out.size());
  deflate(&state, Z_FINISH);
  out.resize(state.total_out);
  deflateEnd(&state);
  return out;
}

inline std::string zstd(const std::string& text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out;
}

// Sentences of a small made-up language pair, enough to train a tokenizer of a few hundred pieces.
inline std::string sample_sentence(int i, bool french) {
  static const char* const kEnglish[] = {"house", "window",  "printer", "package",  "library",
                                         "file",  "network", "colour",  "keyboard", "garden"};
  static const char* const kFrench[] = {"maison",  "fenêtre", "imprimante", "paquet",  "bibliothèque",
                                        "fichier", "réseau",  "couleur",    "clavier", "jardin"};
  static const char* const kVerb[] = {"opens", "closes", "reads", "writes", "shows", "keeps", "moves"};
  static const char* const kVerbe[] = {"ouvre", "ferme", "lit", "écrit", "montre", "garde", "déplace"};
  std::string text;
  for (int k = 0; k <= i % 5; ++k) {
    const int a = (i * 7 + k * 3) % 10, b = (i * 3 + k) % 7, c = (i + k * 5) % 10;
    if (k > 0) text += french ? " et " : " and ";
    text += french ? std::string("le ") + kFrench[a] + " " + kVerbe[b] + " la " + kFrench[c]
                   : std::string("the ") + kEnglish[a] + " " + kVerb[b] + " the " + kEnglish[c];
  }
  return text + " " + std::to_string(i) + ".";
}

// Lines of text; every tenth is followed by an empty one.
inline DataSource write_lines(const TempFolder& folder, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += sample_sentence(i, false) + (i % 10 == 3 ? "\n\n" : "\n");
  return text_files({folder.file("text", text)});
}

// Trained once per process.
inline const Tokenizer& small_tokenizer() {
  static const TempFolder folder;
  static const Tokenizer tokenizer = [] {
    std::string text;
    for (int i = 0; i < 400; ++i) text += sample_sentence(i, false) + "\n" + sample_sentence(i, true) + "\n";
    TokenizerOptions options;
    options.vocabulary = 400;
    return Tokenizer::train({folder.file("sample.txt", text)}, options, folder / "small.model");
  }();
  return tokenizer;
}

}  // namespace tessera::testing
