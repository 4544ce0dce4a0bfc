// Fetched values.
#include "exec/results.h"

#include "base/check.h"
#include "lang/reference.h"

namespace tessera {

const Results::Impl::Fetch& Results::Impl::get(std::size_t index) const {
  TESSERA_CHECK(index < fetches.size(), "results: there is no fetch {}; the program fetches {} tensors",
                index, fetches.size());
  return fetches[index];
}

double Results::scalar(std::size_t fetch) const {
  const Impl::Fetch& f = impl_->get(fetch);
  TESSERA_CHECK(f.type.shape.elements() == 1, "results: fetch {} ('{}') is {}, not a scalar; use gather()",
                fetch, f.name, to_string(f.type));
  return gather(fetch).get(0);
}

Array Results::gather(std::size_t fetch) const {
  const Impl::Fetch& f = impl_->get(fetch);
  Array whole(f.type);
  const Box box{std::vector<std::int64_t>(f.type.shape.count(), 0), sizes_of(f.type.shape)};
  for (const Impl::Part& part : f.parts)
    copy_box(part.data.data(), part.box, whole.data.data(), box, part.box, size_of(f.type.dtype));
  return whole;
}

void Results::shards(std::size_t fetch, const std::function<void(const Box&, const void*)>& visit) const {
  for (const Impl::Part& part : impl_->get(fetch).parts) visit(part.box, part.data.data());
}

}  // namespace tessera
