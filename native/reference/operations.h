// The operations in plain loops and double precision: what every kernel of kernels.h must give, up to rounding.
#pragma once
#include <cstdint>

#include "paceline/kernels.h"

namespace paceline::reference {

void rms_norm(const float* x, const float* weight, double eps, int32_t n, double* y);
void rope(const float* x, const float* angles, int32_t dim, int32_t head_dim, double* y);
double activate(double x, Activation activation);
double softcap(double x, double cap);

// f16 → number, from the format's definition.
double half_to_double(uint16_t half);

// Attention of one (token, head) pair over the cache that `task` describes, softmax over all visible positions at once.
void attention(const AttentionTask& task, int32_t token, int32_t head, double* out);

// The winner of a race over all tokens, noise for each.
int32_t race(const float* logits, int32_t n, const Race& race);

}  // namespace paceline::reference
