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
bool is_contiguous(const Piece& piece);  // one run of elements on both sides; of a simplified piece
std::int64_t elements(const Piece& piece);

// to[piece.to + ...] = from[piece.from + ...]; `size` is the bytes of one element. The buffers do not
// overlap.
void copy_piece(const Piece& piece, const void* from, void* to, std::size_t size);

// The same with several sources (in the order of piece.sources), combined and rounded once.
void combine_piece(const Piece& piece, Combine combine, DType dtype, std::span<const void* const> from,
                   void* to);

// Whether the elements lie where they go already.
bool stays(const Piece& piece, const void* from, const void* to, std::size_t size);

// Swaps part `index` of `parts` of what a contiguous piece takes with what lies where it goes.
void swap_piece(const Piece& piece, void* from, void* to, std::size_t size, std::int64_t index,
                std::int64_t parts);

// Slice `index` of `parts` of `count` elements begins here: cut at multiples of a cache line, so that members
// never write to one line.
std::int64_t slice_begin(std::int64_t count, std::int64_t parts, std::int64_t index);

// out[i] = combination of from[k][i], i < count. `to` may be one of the sources.
void combine_run(Combine combine, DType dtype, std::span<const void* const> from, std::int64_t offset,
                 void* to, std::int64_t to_offset, std::int64_t count);

}  // namespace tessera
