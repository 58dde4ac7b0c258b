// Page: where the keys of a KV block lie for a layer and a KV head; the values follow them.
#pragma once

#include "kernels/cuda/device.h"
#include "kernels/cuda/kernel_arguments.h"

namespace plimsoll::dev {

// [head_dim][32] f16, then values [32][head_dim].
DEVICE std::uint16_t* page_of(const cuda::KvPages& pages, int block, int kv_head) {
  const std::int64_t head = static_cast<std::int64_t>(pages.layer) * pages.kv_heads + kv_head;
  const std::int64_t page_bytes = static_cast<std::int64_t>(pages.head_dim) * cuda::kPageTokens * 4;
  return reinterpret_cast<std::uint16_t*>(pages.data + block * pages.block_bytes +
                                          head * page_bytes);
}

}  // namespace plimsoll::dev
