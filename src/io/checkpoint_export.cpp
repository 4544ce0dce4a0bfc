// A checkpoint as one safetensors file.
#include "base/aligned_buffer.h"
#include "io/slices.h"
#include "tessera/checkpoint.h"
#include "tessera/safetensors.h"

namespace tessera {

void export_checkpoint(const CheckpointReader& reader, const std::string& file) {
  std::vector<SafetensorsTensor> tensors;
  for (const TensorInfo& info : reader.tensors()) {
    SafetensorsTensor tensor{info.name, info.type.dtype, {}};
    for (const Dim& dim : info.type.shape) tensor.shape.push_back(dim.size);
    tensors.push_back(std::move(tensor));
  }
  SafetensorsWriter writer(file, tensors, {{"step", std::to_string(reader.step())}});
  for (const SafetensorsTensor& tensor : tensors) {
    constexpr std::int64_t kSliceBytes = 16 << 20;
    const auto element = static_cast<std::int64_t>(size_of(tensor.dtype));
    const Box whole{std::vector<std::int64_t>(tensor.shape.size(), 0), tensor.shape};
    for_each_slice(whole, kSliceBytes / element, [&](const Box& slice) {
      AlignedBuffer buffer(static_cast<std::size_t>(slice.elements() * element));
      reader.read(tensor.name, slice, buffer.data());
      writer.write(tensor.name, slice, buffer.data());
    });
  }
  writer.close();
}

}  // namespace tessera
