// The token ids that llama.cpp gives texts: make_token_vectors.py runs this program.
//
//   c++ -O2 -I LLAMA/include -I LLAMA/ggml/include llama_tokens.cpp -L BUILD/bin -lllama
//       -Wl,-rpath,BUILD/bin -o llama_tokens
//   llama_tokens MODEL.gguf [around] < texts > ids
//
// A text is its number of bytes (u32, little-endian) and the bytes. Its ids are their number and
// the ids, each an i32. Special tokens are read in the text. Those before and behind a text are only
// put there with `around`.

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "llama.h"

static bool take(void *to, size_t size) { return fread(to, 1, size, stdin) == size; }

int main(int count, char **given) {
    if (count != 2 && count != 3) return 2;
    llama_log_set([](ggml_log_level, const char *, void *) {}, nullptr);
    llama_model_params params = llama_model_default_params();
    params.vocab_only = true;
    llama_model *model = llama_model_load_from_file(given[1], params);
    if (!model) return 1;
    const llama_vocab *vocab = llama_model_get_vocab(model);
    uint32_t size;
    while (take(&size, 4)) {
        std::string text(size, '\0');
        if (size && !take(text.data(), size)) return 1;
        std::vector<llama_token> ids(size + 16);
        int32_t n = llama_tokenize(vocab, text.data(), (int32_t)size, ids.data(),
                                   (int32_t)ids.size(), count == 3, true);
        if (n < 0) return 1;
        fwrite(&n, 4, 1, stdout);
        fwrite(ids.data(), 4, (size_t)n, stdout);
    }
    llama_model_free(model);
    return 0;
}
