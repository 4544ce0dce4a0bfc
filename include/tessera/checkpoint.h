// Checkpoints that survive kills and power cuts and load on any mesh. A checkpoint is a folder:
//
//   step-000001000/MANIFEST.json, MANIFEST.sha256      what every tensor is and where its boxes lie, with
//   hashes
//                  state.json                          the caller's own state (counters, data position, ...)
//                  shard-00000-of-00004.safetensors    the boxes that one rank wrote
//
// Nothing in it depends on ranks: a tensor is a list of boxes of global indices that cover it once. Saving:
//
//   CheckpointDir dir("run/checkpoints");                       // root: takes the lock, clears leftovers
//   std::string folder = dir.begin(step, bytes);                // root; its text goes to every rank
//   std::string report = write_shard(folder, rank, ranks, blocks);  // every rank; its text goes to the root
//   dir.commit(folder, {.step = step, .state = json}, reports); // root: the checkpoint exists once this
//   returns
//
// If a rank fails, the root calls abandon(folder) instead. Loading, on any mesh:
//
//   NewestCheckpoint newest = newest_valid("run/checkpoints");
//   CheckpointReader reader(newest.path);
//   reader.check_tensors(wanted);
//   reader.read("encoder/w", box, buffer);                      // any box of any tensor, on any thread
//
// Errors: UserError with ExitCode::BadData for a damaged or unsuitable checkpoint, SystemError for the file
// system. Layer: io.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/box.h"
#include "tessera/dim.h"

namespace tessera {

class Vfs;  // of src/base, for tests; nullptr is the machine's file system

struct TensorInfo {
  std::string name;
  Type type;
};

// ---- Saving ----

// A part of a tensor to write. Each element of each tensor belongs to the block of exactly one rank.
struct BlockSource {
  std::string name;
  Type type;                   // of the whole tensor
  Box box;                     // the part; may be empty
  const void* data = nullptr;  // row-major buffer of data_box, which contains box
  Box data_box;
};

// Writes and syncs one rank's shard into the folder of begin(). Returns a report for commit(): a text without
// layout or memory in it, which may travel between hosts. Blocks of all ranks may be written at once, by
// threads or processes.
std::string write_shard(const std::string& folder, int rank, int ranks,
                        const std::vector<BlockSource>& blocks, Vfs* vfs = nullptr);

struct CheckpointInfo {
  std::int64_t step = 0;
  std::string mesh = "";  // texts for people; loading does not need them
  std::string layout = "";
  std::string state = "{}";  // JSON
};

struct CheckpointOptions {
  int keep_last = 3;             // older ones are removed after a commit; 0 keeps all
  std::int64_t keep_every = 0;   // but those whose step is a multiple of this stay; 0: none do
  bool allow_nonfinite = false;  // commit although a tensor holds NaN or infinity
  Vfs* vfs = nullptr;
};

// The folder that holds the checkpoints of one run, locked for this process until destruction. One thread.
class CheckpointDir {
 public:
  // Makes the folder if need be, takes the lock, checks that it can be written, and removes what killed runs
  // left. Throws UserError naming pid and host when another job holds the lock.
  explicit CheckpointDir(const std::string& path, const CheckpointOptions& options = {});
  ~CheckpointDir();

  const std::string& path() const;

  // A new temporary folder. Throws SystemError when the disk has less room than `bytes`, the data of all
  // ranks.
  std::string begin(std::int64_t step, std::uint64_t bytes);

  // Checks that the blocks of the reports cover every tensor once, writes the manifest and puts the
  // checkpoint in place, instead of an older one of the same step. Returns its path. After an exception the
  // temporary folder is gone and older checkpoints are as they were. Then applies the retention; failures
  // there are warnings.
  std::string commit(const std::string& folder, const CheckpointInfo& info,
                     const std::vector<std::string>& reports);

  // Removes the temporary folder of a save that failed, if it is still there. Never throws.
  void abandon(const std::string& folder) noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// ---- Loading ----

struct CheckpointReadOptions {
  bool allow_nonfinite = false;  // accept a checkpoint that was committed with allow_nonfinite
  Vfs* vfs = nullptr;
};

enum class VerifyDepth {
  Files,     // the hash of every file; nothing missing, nothing extra
  Contents,  // and the hash of every tensor's elements
};

// One checkpoint. The constructor checks the manifest against its hash, its form, the tiling and the file
// sizes, and holds the files open; read() checks every piece that it reads. Const functions may run on
// several threads at once.
class CheckpointReader {
 public:
  explicit CheckpointReader(const std::string& path, const CheckpointReadOptions& options = {});
  ~CheckpointReader();
  CheckpointReader(CheckpointReader&&) noexcept;
  CheckpointReader& operator=(CheckpointReader&&) noexcept;

  const std::string& path() const;
  std::int64_t step() const;
  const std::string& mesh() const;
  const std::string& layout() const;
  bool finite() const;
  const std::string& state() const;                // JSON
  const std::vector<TensorInfo>& tensors() const;  // by name
  const TensorInfo* find(std::string_view name) const;

  // Throws UserError that lists up to 20 tensors which are missing here, have another type, or are not
  // wanted.
  void check_tensors(const std::vector<TensorInfo>& wanted) const;

  // Copies `box` of a tensor to `to`, a row-major buffer of just that box. Memory beside `to`: at most 4 MiB.
  void read(std::string_view name, const Box& box, void* to) const;

  // Reads everything and returns what is wrong, a sentence each; empty when all is right. Memory: at most 20
  // MiB.
  std::vector<std::string> verify(VerifyDepth depth = VerifyDepth::Contents) const;

  // The layout-free hash of all tensors, as recorded in the manifest (verify() compares it with the
  // contents).
  std::string state_hash() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

struct CheckpointEntry {
  std::int64_t step = 0;
  std::string path;
};

// The checkpoint folders by rising step, valid or not. Empty when `dir` does not exist.
std::vector<CheckpointEntry> list_checkpoints(const std::string& dir, Vfs* vfs = nullptr);

struct NewestCheckpoint {
  std::string path;                   // "" when there is none
  std::vector<std::string> warnings;  // what is wrong with newer ones, which were passed over; logged too
};

// The checkpoint with the highest step that is wholly right. `read_all` = false trusts the contents of the
// shards and looks at manifests and sizes only. Changes nothing on the disk.
NewestCheckpoint newest_valid(const std::string& dir, bool read_all = true, Vfs* vfs = nullptr);

// ---- Hashes that do not depend on the layout ----

// The sum over a box of hashes of (value, global position). Sums over boxes that tile a tensor add up (modulo
// 2^64) to the hash of the tensor, however it was cut. `data` is a row-major buffer of data_box, which
// contains box.
std::uint64_t box_hash(const Type& type, const Box& box, const void* data, const Box& data_box);

struct TensorHash {
  std::string name;
  Type type;
  std::uint64_t hash = 0;
};

// SHA-256 over names, types and hashes in the order of names; equals CheckpointReader::state_hash() of what
// is saved.
std::string state_hash(std::vector<TensorHash> tensors);

// ---- One file, for other programs ----

// Every tensor of a checkpoint in one safetensors file. Memory: at most 24 MiB.
void export_checkpoint(const CheckpointReader& reader, const std::string& file);

}  // namespace tessera
