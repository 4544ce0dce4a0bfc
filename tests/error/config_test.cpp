// Configuration files that are refused: the whole text with file and line, the exit code, and no file changed
// or made.
#include "tessera/config.h"

#include <fstream>

#include "error/files.h"
#include "error/refused.h"
#include "unit/io_temporary_folder.h"

namespace tessera::testing {
namespace {

TEST(Configurations, AreRefusedWithFileAndLine) {
  const std::pair<const char*, const char*> cases[] = {
      {"[modle]\nlayers = 3\n", "FOLDER/run.toml:1: there is no section [modle]; did you mean 'model'?"},
      {"[model]\nlayer = 3\n", "FOLDER/run.toml:2: model.layer is no key of [model]; did you mean 'layers'?"},
      {"[model]\nlayers = 0\n",
       "FOLDER/run.toml:2: model.layers = 0 is out of range; it must be from 1 to 10000"},
      {"[model]\nlayers = \"six\"\n", "FOLDER/run.toml:2: model.layers must be a whole number, not 'six'"},
      {"[model]\nlayers = 3\nlayers = 4\n",
       "FOLDER/run.toml:3:10: not TOML: Error while parsing key-value pair: cannot redefine existing integer "
       "'layers'"},
      {"[model]\npreset = \"dmeo\"\n",
       "FOLDER/run.toml:2: model.preset: there is no preset 'dmeo'; did you mean 'demo'?; the presets are "
       "tiny, tiny_lm, demo, peers_lm, lm_0.143b, lm_0.218b, lm_0.369b, lm_0.671b, lm_1.275b, lm_2.483b, "
       "lm_4.899b, mt_0.155b, mt_0.244b, mt_0.420b, mt_0.772b, mt_1.477b, mt_2.886b"},
      {"[data]\nformat = \"csv\"\n",
       "FOLDER/run.toml:2: data.format must be one of parallel, tsv, text, jsonl, not 'csv'; did you mean "
       "'tsv'?"},
      {"[data]\ntrain.files = [\"a.en\"]\n",
       "FOLDER/run.toml: data.train.files has 1 entries but data.train.target_files has 0; parallel files "
       "come in pairs"},
      {"[data]\nformat = \"tsv\"\ntrain.files = [\"a\"]\nvocab_size = 40000\n",
       "FOLDER/run.toml: data.vocab_size = 40000 does not fit into model.vocab = 32000; make them equal"},
      {"[data]\nformat = \"tsv\"\ntrain.files = [\"a\"]\nmax_target_length = 500\n",
       "FOLDER/run.toml: data.max_target_length = 500 is more than the 256 learned positions of "
       "model.max_length; make them fit"},
      {"[data]\nbatch_sentences = 4\n[train]\nmicro_batches = 8\n",
       "FOLDER/run.toml: train.micro_batches = 8 is more than the 4 rows of data.batch_sentences; use fewer"},
      {"include = [\"gone.toml\"]\n",
       "FOLDER/run.toml:1: include 'gone.toml': there is no file FOLDER/gone.toml"},
      {"[mesh]\nshape = \"rows:0\"\n",
       "FOLDER/run.toml: mesh.shape = \"rows:0\": axis 'rows' has size 0; it must be at least 1"},
  };
  for (const auto& [text, message] : cases) {
    const TemporaryFolder folder;
    const std::string path = folder / "run.toml";
    std::ofstream(path) << text;
    const auto before = contents(folder.path());
    const std::string whole = std::regex_replace(message, std::regex("FOLDER"), folder.path());
    expect_refused(whole, ExitCode::Usage, [&] { load_config(path); });
    EXPECT_EQ(contents(folder.path()), before) << text;
  }
}

}  // namespace
}  // namespace tessera::testing
