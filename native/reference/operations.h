// The operations in plain loops and double precision: what every kernel of kernels.h must give, up to rounding.
#pragma once
#include <cstdint>
#include <vector>

#include "paceline/kernels.h"

namespace paceline::reference {

void rms_norm(const float* x, const float* weight, double eps, int32_t n, double* y);
void rope(const float* x, const float* angles, int32_t dim, int32_t head_dim, double* y);
double activate(double x, Activation activation);
double softcap(double x, double cap);

// What a KV head's part of a block says of one token, from the layout's definition.
double stored_key(KvType type, const uint8_t* block, int32_t channel, int32_t slot);
double stored_value(KvType type, const uint8_t* block, int32_t head_dim, int32_t channel, int32_t slot);

// A key or query as it is before rounding: times the Hadamard matrix where the type says so.
std::vector<double> rotated(KvType type, const float* x, int32_t head_dim);

// Attention of one (token, head) pair over the cache that `task` describes, softmax over all visible positions at once,
// without rounding queries or weights.
void attention(const AttentionTask& task, KvType type, int32_t token, int32_t head, double* out);

// The winner of a race over all tokens, noise for each.
int32_t race(const float* logits, int32_t n, const Race& race);

}  // namespace paceline::reference
