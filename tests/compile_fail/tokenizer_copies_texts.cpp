// SPDX-License-Identifier: MIT
//
// The text of a token is kept as a view, so a tokenizer that makes a new string of it is none.
// expect-error: text_tokenizer: a tokenizer lacks std::string_view text_of\(token_id\) const, of bytes that stay valid
// expect-error: wrap your own in a class with these two
#include <string>
#include <string_view>
#include <vector>

#include <sureleap/sampling/shared_tokens.hpp>

using sureleap::token_id;

struct letters {
#ifdef SURELEAP_EXPECT_FAILURE
    std::string text_of(token_id x) const { return std::string(1, static_cast<char>('a' + x)); }
#else
    std::string_view text_of(token_id x) const { return std::string_view("ab").substr(static_cast<std::size_t>(x), 1); }
#endif
    std::vector<token_id> encode(std::string_view text) const {
        std::vector<token_id> tokens;
        for (char const c : text) tokens.push_back(c - 'a');
        return tokens;
    }
};

int main() {
    sureleap::shared_tokens const shared(letters{}, 2, letters{}, 2);
    return static_cast<int>(shared.ids().size());
}
