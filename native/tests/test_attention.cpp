// Keys and values in the cache and attention over them, on every target of this machine, against the plain loops.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "claims.h"
#include "paceline/kernels.h"
#include "reference/operations.h"
#include "runtime/dispatch.h"

namespace paceline {
namespace {

double largest(const std::vector<double>& values) {
  double top = 0.0;
  for (const double value : values) top = std::max(top, std::abs(value));
  return top;
}

// The largest integers of a type, from the contract: exact sums of 32 bits.
double key_limit(KvType type, int32_t head_dim) {
  return type == KvType::int8 ? 127.0 : std::min(32767.0, std::floor(std::sqrt(2147483647.0 / head_dim)));
}
double query_limit(KvType type, int32_t head_dim) { return type == KvType::int8 ? 32767.0 : key_limit(type, head_dim); }
double value_limit(KvType type) { return type == KvType::int8 ? 127.0 : 4095.0; }

std::string name_of(const Kernels& kernels, KvType type) {
  return std::string(kernels.name) + (type == KvType::int16 ? " int16 " : " int8 ");
}

// A pool of random K and V, written by kv_write itself: its rounding is checked against the layout's definition.
struct Cache {
  KvType type;
  int32_t num_kv_heads, head_dim;
  std::vector<uint8_t> kv;
  std::vector<int32_t> table;

  ptrdiff_t stride() const { return num_kv_heads * kv_head_bytes(type, head_dim); }
  uint8_t* block(int32_t position, int32_t head) {
    return kv.data() + table[position / kBlockSize] * stride() + head * kv_head_bytes(type, head_dim);
  }
};

void check_written(const Kernels& kernels, Cache& cache, int32_t position, int32_t head, const std::vector<float>& k,
                   const std::vector<float>& v) {
  const KvType type = cache.type;
  const uint8_t* block = cache.block(position, head);
  const std::vector<double> key = reference::rotated(type, k.data(), cache.head_dim), value(v.begin(), v.end());
  // Half a unit, and the roundings of scale, inverse, product and rotation.
  const double slack = 1.0 + 40 * 0x1p-24 * key_limit(type, cache.head_dim);
  const double key_unit = largest(key) / key_limit(type, cache.head_dim) * slack;
  const double value_unit = largest(value) / value_limit(type) * slack;
  for (int32_t d = 0; d < cache.head_dim; ++d) {
    const int32_t slot = position % kBlockSize;
    claim_near(reference::stored_key(type, block, d, slot), key[d], key_unit / 2, name_of(kernels, type) + "key");
    claim_near(reference::stored_value(type, block, cache.head_dim, d, slot), value[d], value_unit / 2,
               name_of(kernels, type) + "value");
  }
}

Cache make_cache(const Kernels& kernels, KvType type, int32_t num_kv_heads, int32_t head_dim, int32_t num_tokens) {
  const int32_t num_blocks = (num_tokens + kBlockSize - 1) / kBlockSize;
  Cache cache{type, num_kv_heads, head_dim, {}, {}};
  cache.kv.assign(static_cast<size_t>(cache.stride()) * (num_blocks + 1), 0x7b);  // stale: scales of 1e36
  for (int32_t b = 0; b < num_blocks; ++b) cache.table.push_back(1 + (num_blocks % 7 ? (b * 7 + 3) % num_blocks : b));
  for (int32_t token = 0; token < num_tokens; ++token) {
    for (int32_t head = 0; head < num_kv_heads; ++head) {
      const auto k = normals(head_dim, 1000 + token * 8 + head), v = normals(head_dim, 900000 + token * 8 + head);
      kernels.kv_write[static_cast<size_t>(type)](k.data(), v.data(), head_dim, token % kBlockSize,
                                                  cache.block(token, head));
      if (token < 40) check_written(kernels, cache, token, head, k, v);
    }
  }
  return cache;
}

struct Case {
  int32_t num_heads, num_kv_heads, head_dim, context, window;
  float softcap;
};

constexpr Case kCases[] = {{3, 1, 64, 1, 0, 0.0f},    {4, 2, 16, 40, 0, 0.0f},   {9, 3, 64, 300, 0, 0.0f},
                           {7, 1, 40, 530, 0, 0.0f},  {4, 1, 256, 90, 33, 0.0f}, {14, 2, 64, 270, 16, 0.0f},
                           {16, 1, 32, 64, 0, 20.0f}, {2, 2, 512, 20, 0, 0.0f},  {1, 1, 128, 600, 257, 5.0f}};

// The last tokens of one sequence, attended in tiles of any shape.
struct Run {
  const Kernels& kernels;
  const Case& c;
  Cache cache;
  int32_t num_tokens = std::min(c.context, 5);
  int32_t width = c.num_heads * c.head_dim;
  int32_t group = c.num_heads / c.num_kv_heads;
  std::vector<float> q = normals(static_cast<size_t>(num_tokens) * width, 5, 2.0f);
  std::vector<int32_t> positions = ascending(c.context - num_tokens, num_tokens);

  static std::vector<int32_t> ascending(int32_t from, int32_t count) {
    std::vector<int32_t> values;
    for (int32_t i = 0; i < count; ++i) values.push_back(from + i);
    return values;
  }
  AttentionTask task(float* out) {
    return {q.data(),
            width,
            out,
            width,
            cache.kv.data(),
            cache.stride(),
            cache.table.data(),
            positions.data(),
            c.num_heads,
            c.num_kv_heads,
            c.head_dim,
            c.window,
            1.0f / std::sqrt(static_cast<float>(c.head_dim)),
            c.softcap};
  }
  int32_t num_chunks() const { return (c.context - 1) / kAttentionChunk + 1; }
  int32_t stride() const { return attention_state_floats(c.head_dim); }
  std::vector<float> fresh() const {
    std::vector<float> states(static_cast<size_t>(kMaxPairs) * stride());
    for (int32_t i = 0; i < kMaxPairs; ++i) states[i * stride()] = -std::numeric_limits<float>::infinity();
    return states;
  }
  // The result with `tile_pairs` pairs a tile; chunks in one call, or each alone and folded afterwards.
  std::vector<float> attend(int32_t tile_pairs, bool folds_later) {
    std::vector<float> out(q.size(), NAN), scratch(attention_scratch_floats(c.head_dim));
    const AttentionTask t = task(out.data());
    const AttendFn attend = kernels.attend[static_cast<size_t>(cache.type)];
    for (int32_t kv_head = 0; kv_head < c.num_kv_heads; ++kv_head) {
      for (int32_t begin = 0; begin < num_tokens * group; begin += tile_pairs) {
        const AttentionTile tile{kv_head, 0, begin, std::min(begin + tile_pairs, num_tokens * group)};
        std::vector<float> states = fresh();
        if (!folds_later) attend(t, tile, 0, num_chunks(), states.data(), scratch.data());
        for (int32_t chunk = 0; folds_later && chunk < num_chunks(); ++chunk) {
          std::vector<float> later = fresh();
          attend(t, tile, chunk, chunk + 1, later.data(), scratch.data());
          for (int32_t i = 0; i < kMaxPairs; ++i) {
            kernels.fold(later.data() + i * stride(), c.head_dim, states.data() + i * stride());
          }
        }
        for (int32_t pair = tile.pair_begin; pair < tile.pair_end; ++pair) {
          const float* state = states.data() + (pair - tile.pair_begin) * stride();
          float* row = out.data() + (pair / group * c.num_heads + kv_head * group + pair % group) * c.head_dim;
          for (int32_t d = 0; d < c.head_dim; ++d) row[d] = state[kStateHeader + d] / state[1];
        }
      }
    }
    return out;
  }
};

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Rounding q moves a score by at most Σ|k| half units, of which random signs leave a root: 4 standard deviations of it
// move every weight. A weight is off by half a unit of 2^-15 (or of what exact sums allow) of the largest.
double tolerance_of(const Case& c, KvType type) {
  const double unit = 5.0 * 2.0 / query_limit(type, c.head_dim);  // queries have spread 2 and hardly exceed 10
  const double score = 4.0 * unit / std::sqrt(12.0) + (c.head_dim + 64) * 0x1p-23;
  const double weight = type == KvType::int8 ? 0x1p-16 : std::max(0x1p-16, 256.0 * value_limit(type) / 0x1p32);
  return 3.0 * (score + 4.0 * weight * std::sqrt(c.context));
}

void test_attention(const Kernels& kernels, KvType type) {
  for (const Case& c : kCases) {
    Run run{kernels, c, make_cache(kernels, type, c.num_kv_heads, c.head_dim, c.context)};
    const std::vector<float> alone = run.attend(1, false);
    for (int32_t tile_pairs = 2; tile_pairs <= kMaxPairs; ++tile_pairs) {
      claim(same_bits(alone, run.attend(tile_pairs, false)), name_of(kernels, type) + "pairs together, same bits");
    }
    claim(same_bits(alone, run.attend(5, true)), name_of(kernels, type) + "chunks folded later, same bits");
    std::vector<double> expected(c.head_dim);
    std::vector<float> unused(run.q.size());
    const AttentionTask task = run.task(unused.data());
    for (int32_t t = 0; t < run.num_tokens; ++t) {
      for (int32_t head = 0; head < c.num_heads; ++head) {
        reference::attention(task, type, t, head, expected.data());
        for (int32_t d = 0; d < c.head_dim; ++d) {
          claim_near(alone[t * run.width + head * c.head_dim + d], expected[d], tolerance_of(c, type),
                     name_of(kernels, type) + "attention of head width " + std::to_string(c.head_dim));
        }
      }
    }
  }
}

void test_kv_write_is_always_finite(const Kernels& kernels, KvType type) {
  const float wild[] = {1e30f, -1e38f, NAN, INFINITY, -INFINITY, 65520.0f, 1e-8f, -3e-7f};
  const float tiny[] = {1e-38f, -1e-40f, 1e-45f, 0.0f, -0.0f, 1e-31f, 0.0f, 0.0f};
  std::vector<uint8_t> block(kv_head_bytes(type, 8), 0xff);
  const KvWriteFn write = kernels.kv_write[static_cast<size_t>(type)];
  write(wild, wild, 8, 3, block.data());
  write(tiny, tiny, 8, 4, block.data());
  for (int32_t d = 0; d < 8; ++d) {
    claim(std::isfinite(reference::stored_key(type, block.data(), d, 3)), name_of(kernels, type) + "keys are finite");
    claim(std::abs(reference::stored_value(type, block.data(), 8, d, 3)) <= 1.001e30,
          name_of(kernels, type) + "values are finite");
    claim(reference::stored_key(type, block.data(), d, 4) == 0.0 &&
              reference::stored_value(type, block.data(), 8, d, 4) == 0.0,
          name_of(kernels, type) + "what is too small is zero");
  }
}

// Every number at its limit with one sign: the integer sums come as near to 2^31 as they ever do.
void test_extremes_do_not_overflow(const Kernels& kernels, KvType type) {
  for (const int32_t head_dim : {8, 64, 80, 512}) {
    const Case c{1, 1, head_dim, 256, 0, 0.0f};
    Run run{kernels, c, make_cache(kernels, type, 1, head_dim, 256)};
    const std::vector<float> ones(head_dim, 1.0f);
    for (int32_t position = 0; position < 256; ++position) {
      kernels.kv_write[static_cast<size_t>(type)](ones.data(), ones.data(), head_dim, position % kBlockSize,
                                                  run.cache.block(position, 0));
    }
    run.q.assign(run.q.size(), 1.0f);
    for (const float value : run.attend(1, false)) {
      claim_near(value, 1.0, 0x1p-19, name_of(kernels, type) + "the mean of ones is one");
    }
  }
}

}  // namespace
}  // namespace paceline

int main() {
  using namespace paceline;
  for (const TargetInfo& target : list_targets()) {
    if (target.kernels == nullptr) continue;
    for (const KvType type : {KvType::int16, KvType::int8}) {
      test_attention(*target.kernels, type);
      test_kv_write_is_always_finite(*target.kernels, type);
      test_extremes_do_not_overflow(*target.kernels, type);
    }
    std::printf("%s: done\n", target.name.c_str());
  }
  std::printf("%d failed\n", num_failures);
  return num_failures == 0 ? 0 : 1;
}
