// Examples of a DataSource one after the other, with bounded memory.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "data/line_reader.h"
#include "tessera/data.h"

namespace tessera::data {

class ExampleReader {
 public:
  // Throws UserError when the source contradicts itself; files are opened by next().
  explicit ExampleReader(const DataSource& source);

  // False at the end of the last file. Examples of other origins and skipped ones do not appear.
  bool next(TextExample& example);

  bool has_target() const;
  std::string where() const;  // "line 3 of 'train.en'"
  std::int64_t replaced_utf8() const { return replaced_; }
  std::int64_t skipped_utf8() const { return skipped_; }

 private:
  bool next_file();
  bool read_row(TextExample& example, bool& wanted);
  void check_parallel_end() const;
  void split_tsv(std::string_view line, TextExample& example) const;
  void split_json(std::string_view line, TextExample& example) const;
  bool check_utf8(const LineReader& reader, std::string& text, std::int64_t offset_in_line);

  const DataSource source_;
  std::size_t file_ = 0;  // index of the next file to open
  std::unique_ptr<LineReader> main_, target_, documents_;
  std::int64_t replaced_ = 0, skipped_ = 0;
  bool any_origin_ = false;
};

}  // namespace tessera::data
