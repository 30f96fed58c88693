// Logits of a model as llama.cpp computes them: MODEL THREADS CONTEXT FLASH(0|1).
//
// Writes the vocabulary's size as an int32. Then, for each request on stdin (int32 start, int32 count, count token
// ids), the logits of these tokens, [count, V] float32. A request that starts at 0 begins a new sequence; any other
// goes on where the last one ended.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "llama.h"

namespace {

void fail(const char* what) {
  std::fprintf(stderr, "%s\n", what);
  std::exit(1);
}

bool read_ints(std::vector<int32_t>& values) {
  return std::fread(values.data(), sizeof(int32_t), values.size(), stdin) == values.size();
}

void serve(llama_context* context, int32_t vocab_size) {
  std::vector<int32_t> head(2);
  while (read_ints(head)) {
    std::vector<int32_t> ids(head[1]);
    if (!read_ints(ids)) fail("the request was cut off");
    if (head[0] == 0) llama_memory_clear(llama_get_memory(context), true);
    llama_batch batch = llama_batch_init(head[1], 0, 1);
    batch.n_tokens = head[1];
    for (int32_t i = 0; i < head[1]; ++i) {
      batch.token[i] = ids[i];
      batch.pos[i] = head[0] + i;
      batch.n_seq_id[i] = 1;
      batch.seq_id[i][0] = 0;
      batch.logits[i] = 1;
    }
    if (llama_decode(context, batch) != 0) fail("llama_decode failed");
    for (int32_t i = 0; i < head[1]; ++i) {
      const float* logits = llama_get_logits_ith(context, i);
      if (logits == nullptr) fail("a row has no logits");
      if (std::fwrite(logits, sizeof(float), vocab_size, stdout) != static_cast<size_t>(vocab_size))
        fail("stdout is closed");
    }
    std::fflush(stdout);
    llama_batch_free(batch);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) fail("expected MODEL THREADS CONTEXT FLASH");
  llama_backend_init();
  llama_model* model = llama_model_load_from_file(argv[1], llama_model_default_params());
  if (model == nullptr) fail("the model cannot be loaded");
  llama_context_params params = llama_context_default_params();
  params.n_ctx = params.n_batch = params.n_ubatch = static_cast<uint32_t>(std::atoi(argv[3]));
  params.n_threads = params.n_threads_batch = std::atoi(argv[2]);
  params.flash_attn_type = std::atoi(argv[4]) != 0 ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
  llama_context* context = llama_init_from_model(model, params);
  if (context == nullptr) fail("the context cannot be made");
  const int32_t vocab_size = llama_vocab_n_tokens(llama_model_get_vocab(model));
  std::fwrite(&vocab_size, sizeof vocab_size, 1, stdout);
  std::fflush(stdout);
  serve(context, vocab_size);
  llama_free(context);
  llama_model_free(model);
  llama_backend_free();
  return 0;
}
