// SPDX-License-Identifier: MIT
//
// Every public concept with the shipped types that model it, and an archetype with nothing but what is required. Near
// misses lack one thing or have one thing wrong. The static_asserts are the test.
#include <complex>
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <sureleap/sureleap.hpp>

using namespace sureleap;

// Not anonymous: compilers would miss the definitions of functions that are declared to be looked at only.
namespace concept_test {

using reals = std::span<float const>;
using requests = std::span<request_view const>;

// ---- weight_function -------------------------------------------------------------------------------------------

namespace weight {
struct archetype {
    std::size_t size() const;
    float operator[](token_id) const;
    double total() const;
};
struct without_total : archetype {
    void total() const = delete;
};
struct without_size : archetype {
    void size() const = delete;
};
struct mutable_access : archetype {
    float operator[](token_id);
};
struct complex_weights : archetype {
    std::complex<double> operator[](token_id) const;
};

static_assert(weight_function<archetype>);
static_assert(weight_function<distribution<float>> && weight_function<distribution<double>>);
static_assert(weight_function<distribution<bf16>> && weight_function<distribution<half>>);
static_assert(weight_function<residual<distribution<float>, distribution<double>>>);
static_assert(!weight_function<without_total>);
static_assert(!weight_function<without_size>);
static_assert(!weight_function<mutable_access>);
static_assert(!weight_function<complex_weights>);
static_assert(!weight_function<std::vector<double>>, "a vector does not know its total");
static_assert(!weight_function<probability_row<float>>);
static_assert(!weight_function<logits_row<float>>, "logits are no weights");
}  // namespace weight

// ---- randomness ------------------------------------------------------------------------------------------------

namespace source {
struct archetype {
    bool bernoulli(draw_key const&, double, double);
    token_id categorical(draw_key const&, auto const&);
    token_id gumbel_max(draw_key const&, auto const&);
};
struct without_gumbel_max : archetype {
    void gumbel_max() const = delete;
};
struct without_keys : archetype {
    bool bernoulli(double, double);
    token_id categorical(auto const&);
    token_id gumbel_max(auto const&);
};
struct of_bits {  // an engine of <random>: it gives bits, not decisions
    using result_type = unsigned;
    unsigned operator()();
};
struct index_of_other_type : archetype {
    std::size_t categorical(draw_key const&, auto const&);
};

static_assert(randomness<archetype>);
static_assert(randomness<philox_randomness> && randomness<philox_randomness const>);
static_assert(!randomness<archetype const>, "a stateful source is handed over mutable");
static_assert(!randomness<without_gumbel_max>);
static_assert(!randomness<without_keys>);
static_assert(!randomness<of_bits>);
static_assert(!randomness<index_of_other_type>);

// ---- concurrent_randomness
struct silent {  // const, but it may be a view of something that is not
    bool bernoulli(draw_key const&, double, double) const;
    token_id categorical(draw_key const&, auto const&) const;
    token_id gumbel_max(draw_key const&, auto const&) const;
};
struct concurrent : silent {
    static constexpr bool is_concurrent = true;
};
struct says_no : silent {
    static constexpr bool is_concurrent = false;
};
struct stateful : archetype {
    static constexpr bool is_concurrent = true;
};
struct decided_at_run_time : silent {
    bool is_concurrent = true;
};
static_assert(concurrent_randomness<concurrent> && concurrent_randomness<concurrent const>);
static_assert(concurrent_randomness<philox_randomness> && concurrent_randomness<philox_randomness const>);
static_assert(randomness<silent const> && !concurrent_randomness<silent>);
static_assert(!concurrent_randomness<says_no>);
static_assert(!concurrent_randomness<stateful>, "it changes when it is asked");
static_assert(!concurrent_randomness<decided_at_run_time>);
}  // namespace source

// ---- executor --------------------------------------------------------------------------------------------------

namespace threads {
struct archetype {
    void run(std::size_t, task_ref) noexcept;
    std::size_t width() const;
};
struct constant {
    void run(std::size_t, task_ref) const noexcept;
    unsigned width() const;
};
struct any_callable {  // a pool's own interface may do
    template <class F>
    void run(std::size_t, F const&) noexcept;
    std::size_t width() const;
};
struct without_width : archetype {
    void width() const = delete;
};
struct width_is_not_const : archetype {
    std::size_t width();
};
struct task_without_number : archetype {
    void run(std::size_t, void (*)()) noexcept;
};
struct one_by_one : archetype {  // as pools of futures do: who would wait for the end?
    void run(task_ref) noexcept;
};
struct may_throw : archetype {  // with tasks on other threads, what would become of them?
    void run(std::size_t, task_ref);
};
struct task {
    void operator()(std::size_t) const noexcept;
};

static_assert(executor<archetype> && executor<constant> && executor<constant const> && executor<any_callable>);
static_assert(executor<executor_ref> && executor<executor_ref const>);
static_assert(!executor<archetype const>, "run need not be const, and is not here");
static_assert(!executor<without_width>);
static_assert(!executor<width_is_not_const>);
static_assert(!executor<task_without_number>);
static_assert(!executor<one_by_one>);
static_assert(!executor<may_throw>);
static_assert(!executor<task_ref>);
static_assert(std::is_trivially_copyable_v<task_ref> && std::is_trivially_copyable_v<executor_ref>);
static_assert(std::is_nothrow_invocable_v<task_ref const&, std::size_t>);
static_assert(std::is_convertible_v<task const&, task_ref> && std::is_convertible_v<archetype&, executor_ref>);
static_assert(std::is_convertible_v<constant const&, executor_ref>);
static_assert(!std::is_convertible_v<archetype, executor_ref>, "a view of a temporary");
}  // namespace threads

// ---- linear_backend --------------------------------------------------------------------------------------------

namespace linear {
struct archetype {
    static float dot(std::span<bf16 const>, std::span<float const>);
    static void gemv(matrix_view<bf16>, std::span<float const>, std::span<float>);
    static void gemv_add(matrix_view<bf16>, std::span<float const>, std::span<float>);
};
struct without_gemv_add : archetype {
    static void gemv_add() = delete;
};
struct dot_in_double : archetype {
    static double dot(std::span<bf16 const>, std::span<float const>);
};

static_assert(linear_backend<archetype, bf16, float>);
static_assert(linear_backend<scalar_backend, float, float> && linear_backend<scalar_backend, double, double>);
static_assert(linear_backend<native_backend, float, float> && linear_backend<native_backend, double, double>);
static_assert(linear_backend<native_backend, bf16, float> && linear_backend<native_backend, half, double>);
static_assert(linear_backend<scalar_backend, bf16, float> && linear_backend<scalar_backend, half, double>);
static_assert(!linear_backend<archetype, half, float>, "it reads bf16 only");
static_assert(!linear_backend<without_gemv_add, bf16, float>);
static_assert(!linear_backend<dot_in_double, bf16, float>);
}  // namespace linear

// ---- backbone --------------------------------------------------------------------------------------------------

namespace parallel_model {
struct archetype {
    block_forward<bf16> forward(requests);
};
struct callable {
    block_forward<float> operator()(requests);
};
struct without_hidden {
    struct result {
        logits_rows<float> base_logits;
    };
    result forward(requests);
};
struct logits_only {
    logits_rows<float> forward(requests);
};
struct sees_drafts {  // an autoregressive model: its hidden states consume drafted tokens
    block_forward<float> forward(requests, draft_prefixes const&);
};
constexpr auto lambda = [](requests) { return block_forward<double>{}; };

static_assert(backbone<archetype> && backbone<callable> && backbone<decltype(lambda)>);
static_assert(backbone<std::reference_wrapper<callable>>);
static_assert(!backbone<archetype const>, "forward need not be const, and is not here");
static_assert(!backbone<without_hidden>);
static_assert(!backbone<logits_only>);
static_assert(!backbone<sees_drafts>);
static_assert(!backbone<int>);
}  // namespace parallel_model

// ---- autoregressive_model --------------------------------------------------------------------------------------

namespace sequential_model {
struct archetype {
    logits_rows<half> forward(requests, draft_prefixes const&);
};
struct callable {
    logits_rows<float> operator()(requests, draft_prefixes);
};
struct without_prefixes {
    logits_rows<float> forward(requests);
};
struct copies_rows {
    std::vector<float> forward(requests, draft_prefixes const&);
};
constexpr auto lambda = [](requests, draft_prefixes const&) { return logits_rows<float>{}; };
constexpr auto logits = [](std::span<token_id const>, std::span<float>) {};

static_assert(autoregressive_model<archetype> && autoregressive_model<callable>);
static_assert(autoregressive_model<decltype(lambda)>);
static_assert(autoregressive_model<decltype(model_of<float>(8, logits))>);
static_assert(!autoregressive_model<without_prefixes>);
static_assert(!autoregressive_model<copies_rows>);
static_assert(!autoregressive_model<decltype(logits)>, "a function of a context needs model_of around it");
static_assert(!autoregressive_model<parallel_model::archetype>);
}  // namespace sequential_model

// ---- sequential_head -------------------------------------------------------------------------------------------

namespace head {
struct archetype {
    using value_type = float;
    std::size_t vocabulary() const;
    std::size_t previous_vocabulary() const;
    std::size_t hidden_size() const;
    std::size_t state_size() const;
    void reset(std::span<float>) const;
    void add_bias(std::span<float>, reals, token_id, std::span<float>) const;
};
class without_value_type : public archetype {
    using archetype::value_type;  // private
};
struct without_reset : archetype {
    void reset() const = delete;
};
struct keeps_its_state : archetype {  // mutable: two requests would share a state
    void add_bias(std::span<float>, reals, token_id, std::span<float>);
};
struct without_hidden : archetype {
    void add_bias(std::span<float>, token_id, std::span<float>) const;
};

static_assert(sequential_head<archetype>);
static_assert(sequential_head<no_head<float>> && sequential_head<no_head<double>>);
static_assert(sequential_head<markov_head<float>> && sequential_head<markov_head<bf16>>);
static_assert(sequential_head<markov_head<half, double>>);
static_assert(sequential_head<gated_head<double>> && sequential_head<rnn_head<bf16>>);
static_assert(sequential_head<domino_head<half>> && sequential_head<domino_head<bf16, double>>);
static_assert(!sequential_head<without_value_type>);
static_assert(!sequential_head<without_reset>);
static_assert(!sequential_head<keeps_its_state>);
static_assert(!sequential_head<without_hidden>);
static_assert(!sequential_head<confidence_head<float>>);

// ---- factored_head
struct factored : archetype {
    struct product {
        void add(float const* const*, float const* const*, float* const*, std::size_t, executor_ref const&) const;
        void add_at(std::span<token_id const>, reals, std::span<float>) const;
    };
    reals code(std::span<float>, reals, token_id) const;
    product output() const;
};
struct without_rows : factored {
    struct all_only {
        void add(float const* const*, float const* const*, float* const*, std::size_t, executor_ref const&) const;
    };
    all_only output() const;
};
struct without_code : factored {
    void code() const = delete;
};
struct mutable_code : factored {
    std::span<float> code(std::span<float>, reals, token_id) const;
};
template <class W>
using in_eight_bits = markov_head<W, float, native_backend, int8_view>;

static_assert(factored_head<factored>);
static_assert(factored_head<markov_head<bf16>> && factored_head<gated_head<double>> && factored_head<rnn_head<half>>);
static_assert(factored_head<domino_head<bf16>> && sequential_head<shortlist_head<domino_head<bf16>>>);
static_assert(factored_head<in_eight_bits<float>> && factored_head<in_eight_bits<bf16>>);
static_assert(sequential_head<shortlist_head<markov_head<bf16>>>);
static_assert(sequential_head<shortlist_head<in_eight_bits<bf16>>>);
static_assert(!factored_head<shortlist_head<markov_head<bf16>>>, "its logits run over a list");
static_assert(!factored_head<no_head<float>> && !factored_head<archetype>);
static_assert(!factored_head<without_rows>);
static_assert(!factored_head<without_code>);
static_assert(!factored_head<mutable_code>, "a code is read only");
}  // namespace head

// ---- confidences -----------------------------------------------------------------------------------------------

namespace confidence {
struct of_hidden {
    float operator()(reals, token_id, std::size_t) const;
};
struct of_row {
    double operator()(distribution<float> const&, std::size_t) const;
};
struct reads_x_k {  // (h_k, x_{k-1}, x_k, k)
    double operator()(reals, token_id, token_id, std::size_t) const;
};
struct reads_probability_of_x_k {  // (q_k, x_k, k)
    double operator()(distribution<float> const&, token_id, std::size_t) const;
};
struct remembers {  // not const: it could keep a memory of drafted tokens
    double operator()(reals, token_id, std::size_t);
};
struct without_position {
    double operator()(reals, token_id) const;
};
struct verdict_instead {
    std::string operator()(reals, token_id, std::size_t) const;
};

static_assert(pre_token_confidence<of_hidden, float> && !confidence_estimate<of_hidden, float>);
static_assert(confidence_estimate<of_row, float> && !pre_token_confidence<of_row, float>);
static_assert(pre_token_confidence<confidence_head<bf16>, float>);
static_assert(pre_token_confidence<confidence_head<double>, double>);
static_assert(confidence_estimate<top1_confidence, float> && confidence_estimate<top1_confidence, double>);
static_assert(!pre_token_confidence<top1_confidence, float>);
static_assert(!pre_token_confidence<reads_x_k, float> && !confidence_estimate<reads_x_k, float>);
static_assert(!pre_token_confidence<reads_probability_of_x_k, float>);
static_assert(!confidence_estimate<reads_probability_of_x_k, float>);
static_assert(!pre_token_confidence<remembers, float>);
static_assert(!pre_token_confidence<without_position, float>);
static_assert(!pre_token_confidence<verdict_instead, float>);
static_assert(!pre_token_confidence<confidence_head<float>, double>, "h is float where the head is");
static_assert(!pre_token_confidence<no_confidence, float> && !confidence_estimate<no_confidence, float>);

// At the anchor.
struct at_anchor_of_hidden {
    double at_anchor(reals, token_id, std::size_t) const;
};
struct at_anchor_of_row {
    double at_anchor(distribution<float> const&, std::size_t) const;
};
struct at_anchor_with_drafts {
    double at_anchor(reals, token_id, std::span<token_id const>, std::size_t) const;
};
static_assert(anchor_confidence<at_anchor_of_hidden, float> && anchor_confidence<at_anchor_of_row, float>);
static_assert(anchor_confidence<confidence_head<float>, float> && anchor_confidence<top1_confidence, double>);
static_assert(!anchor_confidence<of_hidden, float> && !anchor_confidence<of_row, float>);
static_assert(!anchor_confidence<at_anchor_with_drafts, float>);
static_assert(!anchor_confidence<no_confidence, float>);

struct rescaled {
    double operator()(std::size_t, double) const noexcept;
};
struct without_position_scale {
    double operator()(double) const noexcept;
};
struct in_place {
    void operator()(std::size_t, double&) const noexcept;
};
struct may_throw {
    double operator()(std::size_t, double) const;
};
static_assert(calibrator<rescaled> && calibrator<sequential_scaling>);
static_assert(!calibrator<without_position_scale> && !calibrator<in_place> && !calibrator<may_throw>);
}  // namespace confidence

// ---- drafter ---------------------------------------------------------------------------------------------------

namespace texts {
struct archetype {
    std::string_view text_of(token_id) const;
    std::vector<token_id> encode(std::string_view) const;
};
struct copies_texts {
    std::string text_of(token_id) const;
    std::vector<token_id> encode(std::string_view) const;
};
struct fills_tokens {
    std::string_view text_of(token_id) const;
    void encode(std::string_view, std::vector<token_id>&) const;
};
struct encodes_by_state {
    std::string_view text_of(token_id) const;
    std::vector<token_id> encode(std::string_view);
};
static_assert(text_tokenizer<archetype>);
static_assert(!text_tokenizer<copies_texts>, "its view would dangle");
static_assert(!text_tokenizer<fills_tokens>);
static_assert(!text_tokenizer<encodes_by_state>);
}  // namespace texts

namespace drafting {
struct archetype {
    using value_type = float;
    static constexpr bool is_deterministic = false;
    static constexpr bool is_parallel = false;
    static constexpr bool has_confidence = false;
    std::size_t block_size() const;
    std::size_t vocabulary() const;
    std::size_t target_vocabulary() const;
    int forward(requests);
};
struct undeclared_confidence : archetype {
    void has_confidence() const = delete;
};
struct runtime_trait : archetype {  // whether a combination is lossless is decided at compile time
    bool is_deterministic = false;
};
struct without_forward : archetype {
    void forward() const = delete;
};

using small = autoregressive<sequential_model::archetype>;
using small_sure = autoregressive<sequential_model::archetype, top1_confidence>;
using block = parallel<parallel_model::archetype>;
using block_sure = parallel<parallel_model::archetype, top1_confidence>;
using dspark = semi_autoregressive<parallel_model::archetype, markov_head<bf16>, confidence_head<bf16>>;

static_assert(drafter<archetype>);
static_assert(drafter<small> && drafter<small_sure> && drafter<block> && drafter<block_sure>);
static_assert(drafter<dspark> && drafter<lookup>);
static_assert(drafter<with_lookup<dspark>> && drafter<with_lookup<small>> && drafter<with_lookup<dspark&>>);
using by_text = retokenised_drafts<sequential_model::archetype, texts::archetype, texts::archetype>;
static_assert(drafter<by_text> && by_text::is_deterministic && by_text::has_confidence && !by_text::is_parallel);
static_assert(
    autoregressive_model<shared_token_model<sequential_model::archetype, texts::archetype, texts::archetype>>);
static_assert(!drafter<undeclared_confidence>);
static_assert(!drafter<runtime_trait>);
static_assert(!drafter<without_forward>);
static_assert(!drafter<sequential_model::archetype>, "a model is not yet a drafter");

// What the shipped ones say of themselves.
static_assert(!small::is_deterministic && !small::is_parallel && !small::has_confidence && !small::plans_at_anchor);
static_assert(small_sure::has_confidence && !small_sure::plans_at_anchor, "its confidences consume drafted tokens");
static_assert(!block::is_deterministic && block::is_parallel && !block::has_confidence && !block::plans_at_anchor);
static_assert(block_sure::has_confidence && block_sure::plans_at_anchor);
static_assert(dspark::is_parallel && dspark::has_confidence && dspark::plans_at_anchor);
using joined = with_lookup<dspark>;
static_assert(!joined::is_deterministic && joined::is_parallel && joined::has_confidence && joined::plans_at_anchor);
static_assert(!with_lookup<small>::has_confidence && !with_lookup<small_sure>::plans_at_anchor);
static_assert(lookup::is_deterministic && !lookup::has_confidence && !lookup::plans_at_anchor);
using live_only = semi_autoregressive<parallel_model::archetype, markov_head<float>, confidence::of_hidden>;
static_assert(live_only::has_confidence && !live_only::plans_at_anchor);
static_assert(std::is_same_v<small::value_type, float> && std::is_same_v<dspark::value_type, float>);
static_assert(std::is_same_v<parallel<decltype(parallel_model::lambda)>::value_type, double>);
}  // namespace drafting

// ---- scheduling ------------------------------------------------------------------------------------------------

namespace scheduling {
struct curve {
    double steps_per_second(std::size_t) const;
};
struct curve_without_batch {
    double steps_per_second() const;
};
struct curve_of_names {
    std::string steps_per_second(std::size_t) const;
};
static_assert(capacity_curve<curve> && capacity_curve<analytic_capacity>);
static_assert(capacity_curve<capacity_table<>> && capacity_curve<capacity_table<staircase>>);
static_assert(!capacity_curve<curve_without_batch> && !capacity_curve<curve_of_names>);

struct live {
    void admit(causal_frontier&) const;
};
struct live_on_table {  // asks for all of the block
    void admit(survival_table const&) const;
};
struct live_with_memory {  // not const: it could remember what earlier frontiers revealed
    void admit(causal_frontier&);
};
struct live_on_copy {  // could walk it to the end and then decide by the original
    void admit(causal_frontier) const;
};
static_assert(frontier_scheduler<live>);
static_assert(!frontier_scheduler<live_on_copy>);
static_assert(!std::is_copy_constructible_v<causal_frontier> && !std::is_move_constructible_v<causal_frontier>);
static_assert(!std::is_copy_assignable_v<causal_frontier> && !std::is_move_assignable_v<causal_frontier>);
static_assert(frontier_scheduler<fixed_schedule> && frontier_scheduler<threshold_schedule>);
static_assert(frontier_scheduler<survival_threshold_schedule> && frontier_scheduler<greedy_schedule<curve>>);
static_assert(!frontier_scheduler<live_on_table> && !frontier_scheduler<live_with_memory>);
static_assert(!frontier_scheduler<retrospective_schedule<curve>> && !frontier_scheduler<planned_schedule<curve>>);

struct plans {
    using origin = from_rounds<3>;
    std::size_t budget(planning_table<from_rounds<3>> const&) const;
};
struct plans_from_elsewhere {  // the table it reads is not the one it declares
    using origin = from_rounds<3>;
    std::size_t budget(planning_table<from_anchor> const&) const;
};
class plans_without_origin : public plans {
    using plans::origin;  // private
};
struct plans_live {  // would plan by this round's confidences
    using origin = from_anchor;
    std::size_t budget(survival_table const&) const;
};
struct plans_nothing {
    using origin = from_anchor;
    void budget(planning_table<from_anchor> const&) const;
};
static_assert(planner<plans>);
static_assert(planner<planned_schedule<curve>>);
static_assert(planner<top_k_schedule<curve>> && planner<top_k_schedule<curve, 5>>);
static_assert(!planner<plans_from_elsewhere> && !planner<plans_without_origin>);
static_assert(!planner<plans_live> && !planner<plans_nothing>);
static_assert(!planner<live> && !planner<retrospective_schedule<curve>>);
// Nobody can make a planning table from live confidences, or turn one into another.
static_assert(!std::is_default_constructible_v<planning_table<from_anchor>>);
static_assert(!std::is_constructible_v<planning_table<from_anchor>, survival_table, frontier_memory>);
static_assert(!std::is_constructible_v<planning_table<from_anchor>, planning_table<from_rounds<2>>>);

struct sees_block {
    void admit(draft_table const&, frontier_memory const&) const;
};
struct sees_block_writes_nowhere {
    void admit(draft_table const&) const;
};
struct takes_anything {
    void admit(auto&&...) const;
};
static_assert(table_scheduler<sees_block> && table_scheduler<retrospective_schedule<curve>>);
static_assert(!table_scheduler<sees_block_writes_nowhere>);
static_assert(!table_scheduler<live> && !table_scheduler<fixed_schedule> && !table_scheduler<plans>);
// The doubtful case counts as the dangerous one.
static_assert(table_scheduler<takes_anything> && frontier_scheduler<takes_anything>);
static_assert(causality_of_v<takes_anything> == causality::anticipating);

static_assert(scheduler<live> && scheduler<plans> && scheduler<sees_block>);
static_assert(!scheduler<live_on_table> && !scheduler<plans_live> && !scheduler<sees_block_writes_nowhere>);
static_assert(!scheduler<int>);

struct blind : live {
    static constexpr bool needs_confidence = false;
};
static_assert(needs_confidence_v<live> && needs_confidence_v<plans> && !needs_confidence_v<blind>);
static_assert(needs_confidence_v<greedy_schedule<curve>> && !needs_confidence_v<fixed_schedule>);
}  // namespace scheduling

// ---- target_model, logits_hook ---------------------------------------------------------------------------------

namespace target {
struct archetype {
    logits_rows<bf16> score(verify_batch const&);
};
struct callable {
    logits_rows<float> operator()(verify_batch const&);
};
struct returns_copies {
    std::vector<std::vector<float>> score(verify_batch const&);
};
struct one_request {
    logits_rows<float> score(std::span<token_id const>);
};
struct probabilities {
    probability_row<float> score(verify_batch const&);
};
constexpr auto lambda = [](verify_batch const&) { return logits_rows<half>{}; };
constexpr auto logits = [](std::span<token_id const>, std::span<float>) {};

static_assert(target_model<archetype> && target_model<callable> && target_model<decltype(lambda)>);
static_assert(target_model<decltype(model_of<double>(8, logits))>);
static_assert(!target_model<returns_copies>);
static_assert(!target_model<one_request>);
static_assert(!target_model<probabilities>, "logits in, not probabilities");
static_assert(!target_model<decltype(logits)>, "a function of a context needs model_of around it");
static_assert(std::is_same_v<target_value_t<archetype>, bf16> && std::is_same_v<target_value_t<callable&>, float>);

struct mask {
    void operator()(hook_context const&, std::span<float>) const;
};
struct mask_in_place_of_context {
    void operator()(std::span<float>) const;
};
struct mutable_mask {
    void operator()(hook_context const&, std::span<float>);
};
static_assert(logits_hook<mask, float>);
static_assert(logits_hook<no_logits_hook, float> && logits_hook<no_logits_hook, double>);
static_assert(!logits_hook<mask, double>, "rows of a double target are double");
static_assert(!logits_hook<mask_in_place_of_context, float>);
static_assert(!logits_hook<mutable_mask, float>);
}  // namespace target

// ---- acceptance_sampler ----------------------------------------------------------------------------------------

namespace acceptance {
struct archetype {
    static constexpr fidelity guarantee = fidelity::distribution;
    static constexpr q_access access = q_access::none;
    using draft_rule = categorical_draft;
    decision operator()(auto&, auto&) const;
};
struct without_guarantee : archetype {
    void guarantee() const = delete;
};
struct without_access : archetype {
    void access() const = delete;
};
class without_draft_rule : public archetype {  // coupling with an ordinary draw would silently lose acceptance
    using archetype::draft_rule;               // private
};
struct guarantee_by_name : archetype {
    static constexpr char const* guarantee = "exact";
};
struct counts_only : archetype {
    std::size_t operator()(auto&, auto&) const;
};
struct without_randomness : archetype {
    decision operator()(auto&) const;
};

static_assert(acceptance_sampler<archetype>);
static_assert(acceptance_sampler<token_rejection<>> && acceptance_sampler<token_rejection<argmax_draft>>);
static_assert(acceptance_sampler<block_verification<>> && acceptance_sampler<block_verification<argmax_draft>>);
static_assert(acceptance_sampler<target_match<>> && acceptance_sampler<target_match<categorical_draft>>);
static_assert(acceptance_sampler<greedy_match> && acceptance_sampler<keyed_coupling>);
static_assert(!acceptance_sampler<without_guarantee>);
static_assert(!acceptance_sampler<without_access>);
static_assert(!acceptance_sampler<without_draft_rule>);
static_assert(!acceptance_sampler<guarantee_by_name>);
static_assert(!acceptance_sampler<counts_only>);
static_assert(!acceptance_sampler<without_randomness>);

// How a rule wants its tokens drawn is part of what it is.
static_assert(std::is_same_v<token_rejection<>::draft_rule, categorical_draft>);
static_assert(std::is_same_v<keyed_coupling::draft_rule, coupled_draft>);
static_assert(std::is_same_v<target_match<>::draft_rule, argmax_draft>);
static_assert(std::is_same_v<greedy_match::draft_rule, argmax_draft>);
static_assert(token_rejection<>::access == q_access::row && keyed_coupling::access == q_access::none);
}  // namespace acceptance

}  // namespace concept_test
