// SHA-256 by OpenSSL.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

struct evp_md_ctx_st;

namespace tessera {

class Sha256 {
 public:
  Sha256();
  void update(const void* data, std::size_t bytes);
  std::string hex();  // 64 lower-case digits; ends the computation

 private:
  struct Free {
    void operator()(evp_md_ctx_st* context) const;
  };
  std::unique_ptr<evp_md_ctx_st, Free> context_;
};

std::string sha256_hex(std::string_view bytes);

}  // namespace tessera
