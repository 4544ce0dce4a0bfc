// Filled by the trainer.
namespace tessera {}
