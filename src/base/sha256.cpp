// SHA-256 by OpenSSL.
#include "base/sha256.h"

#include <openssl/evp.h>

#include "base/check.h"

namespace tessera {

void Sha256::Free::operator()(evp_md_ctx_st* context) const {
  EVP_MD_CTX_free(context);
}

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  TESSERA_ASSERT(context_ && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1,
                 "OpenSSL has no SHA-256");
}

void Sha256::update(const void* data, std::size_t bytes) {
  TESSERA_ASSERT(EVP_DigestUpdate(context_.get(), data, bytes) == 1, "SHA-256 failed");
}

std::string Sha256::hex() {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int length = 0;
  TESSERA_ASSERT(EVP_DigestFinal_ex(context_.get(), digest, &length) == 1, "SHA-256 failed");
  std::string text;
  for (unsigned int i = 0; i < length; ++i) text += fmt::format("{:02x}", digest[i]);
  return text;
}

std::string sha256_hex(std::string_view bytes) {
  Sha256 hash;
  hash.update(bytes.data(), bytes.size());
  return hash.hex();
}

}  // namespace tessera
