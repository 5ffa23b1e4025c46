// SPDX-License-Identifier: MIT
//
// An optional member with another signature would be left out silently: a cache would keep what was rejected, a limit
// limit nothing. Of what an adapter wraps as well.
// expect-error: this schedule's limit_drafts would never be called; write
// expect-error: this schedule's set_up would never be called; write
// expect-error: this schedule's observe would never be called; write
// expect-error: this schedule's draft_floor would never be called; write
// expect-error: commit: this model's commit would never be called, so it would keep what was rejected
// expect-error: draft_room: this part's room would never be called; write
// expect-error: draft_unread: this part's unread would never be called; write
// expect-error: round_runner: this target's replays would never be called; write
#include <vector>

#include <sureleap/serving/never_lose.hpp>

#include "parts.hpp"

using namespace parts;

struct careful_schedule : fixed_schedule {
#ifdef SURELEAP_EXPECT_FAILURE
    void limit_drafts(std::vector<request_view>&) {}
    void set_up(round_sizes const&) {}
    void observe(std::span<verdict const>) noexcept {}
    char const* draft_floor() const { return "none"; }
#else
    void limit_drafts(std::span<request_view>) {}
    void set_up(round_sizes const&) {}
    round_sizes sizes() const { return {}; }
    void observe(round_record const&) noexcept {}
    fixed_probability draft_floor() const { return 0; }
#endif
};

struct caching_model {
    logits_rows<float> forward(std::span<request_view const>, draft_prefixes const&) { return {}; }
#ifdef SURELEAP_EXPECT_FAILURE
    void commit(std::vector<verdict> const&, int) noexcept {}
    std::size_t room() const { return 1; }
    void unread(request_view const&) const {}
#else
    void commit(std::span<verdict const>) noexcept {}
    std::size_t room(request_view const&) const { return 1; }
    std::uint64_t unread(request_view const&) const { return 0; }
#endif
};

struct recurrent_target {
    logits_rows<float> score(verify_batch const&) { return {}; }
#ifdef SURELEAP_EXPECT_FAILURE
    void replays(request_view const&) const {}
#else
    bool replays(request_view const&) const { return false; }
#endif
};

struct step {
    double step_seconds(step_load const&) const { return 1.0; }
};

int main() {
    autoregressive drafter{caching_model{}, {.block_size = 2, .vocabulary = 4}};
    decoder alone{recurrent_target{}, drafter, careful_schedule{fixed_schedule{}}, target_match<>{}};
    decoder wrapped{make_target(), make_drafter(), never_lose{careful_schedule{fixed_schedule{}}, step{}},
                    target_match<>{}};
    return alone.step() + wrapped.step();
}
