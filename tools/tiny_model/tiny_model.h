// TinyModel: small models of each family with random weights and a byte-level BPE vocabulary, for
// tests.
//
// Weights are scaled so that activations keep their size from layer to layer and logits spread over
// a few units: what such a model says is noise, but every bug in the arithmetic shows in it. The
// same shape and seed give the same file, byte for byte.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "shared/base/result.h"
#include "shared/model/dtype.h"

namespace plimsoll {

struct TinyModel {
  std::string architecture = "llama";  // qwen2, qwen3, gemma3
  // Of all matrices; where a row is no multiple of a K-quant's 256 columns, the same stand-in as in
  // llama.cpp: Q5_0 for Q4_K, Q5_1 for Q5_K, Q8_0 for Q6_K.
  DType type = DType::q4_0;
  std::int64_t layers = 2;
  std::int64_t hidden = 128;
  std::int64_t heads = 8;
  std::int64_t kv_heads = 4;
  std::int64_t head_dim = 32;
  std::int64_t ffn = 256;
  std::int64_t context_length = 512;
  // Every layer has the weights of the first: large models are made soon.
  bool same_layers = false;
  bool tied_head = true;
  bool rope_freqs = false;          // as in Llama 3
  std::int64_t window = 0;          // tokens; 0: every layer attends to all
  std::int64_t window_pattern = 0;  // of gemma3: every so many-th layer attends to all
  // Copies the tokenizer (and so the size of the vocabulary) of this GGUF file; empty: 256 bytes,
  // three special tokens and a few merges, with a ChatML template.
  std::filesystem::path vocab_from = {};
  std::uint64_t seed = 1;
};

// The bytes of a GGUF file. Errors: a shape that cannot be stored, a vocabulary that cannot be
// read.
Result<std::string> make_tiny_model(const TinyModel& shape);

}  // namespace plimsoll
