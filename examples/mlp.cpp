// The two-layer network of the Mesh-TensorFlow paper on Fashion-MNIST, under four layouts: the program is
// written once, the losses are the same. Needs the Debian package dataset-fashion-mnist.
#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "tessera/tessera.h"

using namespace tessera;

constexpr int kPixels = 784, kSteps = 450, kBatch = 128, kTests = 2000;

// The bytes of an IDX file behind its header; empty when it is not there or too short.
std::vector<unsigned char> read_idx(const std::string& name, unsigned header, unsigned count) {
  std::vector<unsigned char> bytes(count);
  gzFile file = gzopen(("/usr/share/datasets/fashion-mnist/" + name + "-ubyte.gz").c_str(), "rb");
  bool there = file != nullptr && gzseek(file, header, SEEK_SET) >= 0 &&
               gzread(file, bytes.data(), count) == static_cast<int>(count);
  if (file != nullptr) gzclose(file);
  return there ? bytes : std::vector<unsigned char>();
}

struct Images {
  std::vector<unsigned char> pixels, labels;

  FeedMap feeds(const Shape& shape, std::ptrdiff_t first) const {
    Array x({shape, DType::F32}), y({Shape{shape[0]}, DType::I32});
    std::transform(pixels.begin() + first * kPixels, pixels.begin() + first * kPixels + x.elements(),
                   x.as<float>(), [](unsigned char level) { return static_cast<float>(level) / 255; });
    std::copy_n(labels.begin() + first, y.elements(), y.as<std::int32_t>());
    return {{"images", std::move(x)}, {"labels", std::move(y)}};
  }
};

struct Network {
  Tensor images, w1, w2, loss, correct;
  Network(Graph& g, std::int64_t size) {
    Dim batch{"batch", size}, pixels{"pixels", kPixels}, hidden{"hidden", 256}, classes{"classes", 10};
    images = g.input("images", {batch, pixels});
    Tensor labels = g.input("labels", {batch}, DType::I32);
    w1 = g.parameter("w1", {pixels, hidden}, Initializer::normal(0.03));
    w2 = g.parameter("w2", {hidden, classes}, Initializer::normal(0.05));
    Tensor logits = einsum({relu(einsum({images, w1}, {batch, hidden})), w2}, {batch, classes});
    loss = reduce_mean(cross_entropy(logits, labels, "classes"));
    correct = reduce_mean(cast(equal(argmax(logits, "classes"), labels), DType::F32));
  }
};

int main() {
  Images train{read_idx("train-images-idx3", 16, 60000 * kPixels), read_idx("train-labels-idx1", 8, 60000)};
  Images test{read_idx("t10k-images-idx3", 16, 10000 * kPixels), read_idx("t10k-labels-idx1", 8, 10000)};
  std::size_t got =
      std::min({train.pixels.size(), train.labels.size(), test.pixels.size(), test.labels.size()});
  if (got == 0) return std::puts("SKIP mlp: install dataset-fashion-mnist"), 77;
  Graph g, test_graph;
  Network net(g, kBatch), tested(test_graph, kTests);
  Tensors grads = gradients({net.loss}, {net.w1, net.w2});
  Tensor step1 = g.assign(net.w1, net.w1 - 0.1 * grads[0]), step2 = g.assign(net.w2, net.w2 - 0.1 * grads[1]);
  double first = 0, last = 0, first_alone = 0, last_alone = 0;
  bool good = true;
  const char* const meshes[] = {"", "rows:2", "cols:2", "rows:2;cols:2"};
  const char* const layouts[] = {"", "batch:rows", "hidden:cols", "batch:rows;hidden:cols"};
  for (int i = 0; i < 4; ++i) {
    Session run(g, Mesh::parse(meshes[i]), Layout::parse(layouts[i]));
    int step = run.compile({net.loss, step1, step2}), score = run.compile(test_graph, {tested.correct});
    for (int s = 0; s < kSteps; ++s) {
      last = run.run(step, train.feeds(net.images.shape(), s * kBatch)).scalar(0);
      first = s == 0 ? last : first;
    }
    double right = run.run(score, test.feeds(tested.images.shape(), 0)).scalar(0);
    std::printf("%-14s %-23s loss %.6f -> %.6f, accuracy %.4f\n", meshes[i], layouts[i], first, last, right);
    if (i == 0) first_alone = first, last_alone = last;
    good &= right > 0.8 && std::abs(first - first_alone) < 1e-5 && std::abs(last - last_alone) < 1e-3;
  }
  std::puts(good ? "all layouts: the same losses, accuracy above 0.8" : "WRONG");
  return good ? 0 : 1;
}
