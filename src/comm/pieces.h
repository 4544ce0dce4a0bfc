// Copying and combining strided boxes of elements: the work inside collectives and local copies.
// Pure functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "comm/communicator.h"

namespace tessera {

// Drops dimensions of extent 1 and merges neighbours that both sides hold contiguously.
void simplify(Piece& piece);

bool is_empty(const Piece& piece);
std::int64_t elements(const Piece& piece);

// to[piece.to + ...] = from[piece.from + ...]; `size` is the bytes of one element. The buffers do not
// overlap.
void copy_piece(const Piece& piece, const void* from, void* to, std::size_t size);

// The same with several sources (in the order of piece.sources), combined and rounded once.
void combine_piece(const Piece& piece, Combine combine, DType dtype, std::span<const void* const> from,
                   void* to);

// out[i] = combination of from[k][i], i < count. `to` may be one of the sources.
void combine_run(Combine combine, DType dtype, std::span<const void* const> from, std::int64_t offset,
                 void* to, std::int64_t to_offset, std::int64_t count);

}  // namespace tessera
