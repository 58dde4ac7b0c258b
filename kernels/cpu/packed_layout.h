// PackedLayout: how packed weights lie in memory, and the portable reading of them.
//
// A packed matrix is a row of groups of kPackedRows = 16 rows (the last padded with zeros). A group
// holds its blocks along the columns; lane r of every vector below is row r of the group, so that
// one 512-bit or two 256-bit registers hold one value (or four bytes) of all sixteen rows.
//
//   F32, F16         per column: 16 values.
//   BF16             per two columns: 16 pairs, so that one 512-bit register is a factor of
//                    VDPBF16PS. A last column without a pair: 16 values.
//   A run of 32 columns of quantised bits is one *sub-block*:
//     quants   4 vectors of 16 x u32. Byte b of lane r of vector v: low nibble is column 4v + b,
//              high nibble column 16 + 4v + b. (Q8_0: 8 vectors of int8, column 4v + b.)
//     fifth    one vector before them: bit v of byte b of lane r is bit 4 of column 4v + b.
//     two      two vectors before them: bits 2j, 2j+1 of byte b of lane r of vector h are bits 4
//     and
//              5 of column 16h + 4j + b.
//   Q4_0             d 16 x f16, quants                  value d * (q - 8)
//   Q4_1             d, m 16 x f16 each, quants          value d * q + m
//   Q5_0, Q5_1       the same with fifth before quants   value d * (q - 16); d * q + m
//   Q8_0             d, quants                           value d * q
//   Q4_K, Q5_K       d, dmin, 3 vectors of the 12 bytes of six-bit scales and mins of each row as
//                    stored, then 8 sub-blocks           value d * sc * q - dmin * mn
//   Q6_K             d, then 8 times: scales 16 x int8[2] (columns 0-15, 16-31), two, quants
//                                                        value d * sc * (q - 32)
// Sizes equal the stored ones: packing is a shuffle and loses nothing.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shared/model/dtype.h"

namespace plimsoll {

constexpr std::int64_t kSubBlock = 32;  // columns that share one activation scale

// 32 columns of one row: value[k] = scale[k / 16] * quants[k] + min.
struct UnpackedRow {
  std::int8_t quants[kSubBlock];
  float scale[2];
  float min;
};

bool is_quantised(DType dtype);  // false: F32, F16, BF16

// Columns [32 * sub_block, + 32) of row `lane` of a packed group. REQUIRES: is_quantised(dtype).
void unpack_row(DType dtype, const std::byte* group, std::int64_t sub_block, int lane,
                UnpackedRow& row);
// Column `col` of row `lane` of a packed group of `cols` columns. REQUIRES: not
// is_quantised(dtype).
float unpack_float(DType dtype, const std::byte* group, std::int64_t cols, std::int64_t col,
                   int lane);

}  // namespace plimsoll
