// SPDX-License-Identifier: MIT
//
// The acceptance rules of verify/*.hpp on the device, named by the host's types. The host computes rows as a rule asks
// for them. Here rows are completed by other blocks. A rule is told which are complete, judges as far as they allow,
// and is called again when there are more. Rows are judged in order, by one block at a time, whatever the order they
// are completed in.
//
//     static bool advance(C& verification, std::uint32_t& k, std::uint32_t complete);
//         From position k on, which moves along and is kept between calls. Bit k of `complete`: row k is. True if no further
//         row is wanted.
//     static void resume(C& verification, residual_pass how, double mass);
//         After a pass that was left to many blocks (verification.correct and correct_or_reject).
//
// These are BLOCK collectives, with the same arguments in all threads; k is a register of each. Verdicts are written by
// verification.emit and refuse. A request that waits for a pass has none yet.
#pragma once

#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/cuda/verify/verification.cuh>
#include <sureleap/sampling/random.hpp>
#include <sureleap/verify/block.hpp>
#include <sureleap/verify/coupled.hpp>
#include <sureleap/verify/match.hpp>
#include <sureleap/verify/rejection.hpp>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {

/// What a rule wants to know of a row when it is complete, and how many kernels of passes it may need.
struct judging_rule {
    static constexpr bool chooses = false;        ///< its token, before anything is judged
    static constexpr bool greedy = false;         ///< by the largest logit, whatever the transform
    static constexpr bool by_gumbel_max = false;  ///< by a race
    static constexpr bool takes = true;           ///< given normalisers are enough: a row with one need not be read
    static constexpr std::uint32_t passes = 0;
};

template <class Rule>
struct device_rule {
    static_assert(sizeof(Rule) == 0,
                  "cuda::accept: no device code for this rule; use token_rejection, block_verification, greedy_match, "
                  "target_match or keyed_coupling, or specialise cuda::device_rule");
};

/// Rules whose row says which token it is (detail::accept_matching).
struct matching_rule : judging_rule {
    static constexpr bool chooses = true;

    template <class C>
    static __device__ bool advance(C& verification, std::uint32_t& k, std::uint32_t complete) {
        std::uint32_t const length = verification.length();
        for (; k <= length && (complete >> k & 1u) != 0; ++k) {
            token_id const y = verification.target(k).choice;
            if (y == no_token) {
                verification.refuse();
                return true;
            }
            if (k == length || y != verification.token(k)) {
                verification.emit(k, y);
                return true;
            }
        }
        return false;
    }
    template <class C>
    static __device__ void resume(C&, residual_pass const&, double) {}
};

template <class DraftRule>
struct device_rule<target_match<DraftRule>> : matching_rule {};

template <>
struct device_rule<greedy_match> : matching_rule {
    static constexpr bool greedy = true;
    static constexpr bool takes = false;  // which logit is the largest takes a pass
};

template <>
struct device_rule<keyed_coupling> : matching_rule {
    static constexpr bool by_gumbel_max = true;
    static constexpr bool takes = false;  // a race is a pass
};

template <class DraftRule>
struct device_rule<token_rejection<DraftRule>> : judging_rule {
    static constexpr std::uint32_t passes = 1;

    template <class C>
    static __device__ bool advance(C& verification, std::uint32_t& k, std::uint32_t complete) {
        std::uint32_t const length = verification.length();
        for (; k <= length && (complete >> k & 1u) != 0; ++k) {
            target_row const& p = verification.target(k);
            if (!p.p.valid()) {
                verification.refuse();
                return true;
            }
            if (k == length) {
                verification.emit(k, verification.draw(k, verification.key(k, purpose::bonus)));
                return true;
            }
            if (!accepts(uniform(verification.key(k, purpose::accept)), p.kept, verification.drafted_with(k))) {
                verification.correct(k);
                return true;
            }
        }
        return false;
    }
    template <class C>
    static __device__ void resume(C& verification, residual_pass const& how, double mass) {
        verification.emit(how.position, verification.draw_left(how, mass));
    }
};

template <class DraftRule>
struct device_rule<block_verification<DraftRule>> : judging_rule {
    static constexpr std::uint32_t passes = pass_stages;

    template <class C>
    static __device__ bool advance(C& verification, std::uint32_t& k, std::uint32_t complete) {
        std::uint32_t const length = verification.length();
        double* const joint = verification.joint();
        double survives = k == 0 ? 1.0 : joint[k - 1];
        for (; k < length && (complete >> k & 1u) != 0; ++k) {
            target_row const& p = verification.target(k);
            if (!p.p.valid()) {
                verification.refuse();
                return true;
            }
            double const q = verification.drafted_with(k);
            double const ratio = survives * p.kept;
            survives = ratio < q ? ratio / q : 1.0;
            if (!(survives > 0.0)) {
                __syncthreads();  // all that was written before
                judge(verification, k);
                return true;
            }
            if (threadIdx.x == 0) joint[k] = survives;
        }
        __syncthreads();
        if (k == length) {
            // The whole block survives with probability p_l; only then is the row behind it looked at.
            if (length > 0 && !accepts(uniform(verification.key(length - 1, purpose::accept)), survives, 1.0)) {
                judge(verification, length - 1);
                return true;
            }
            if ((complete >> k & 1u) != 0) {
                if (verification.target(k).p.valid()) {
                    verification.emit(k, verification.draw(k, verification.key(k, purpose::bonus)));
                } else {
                    verification.refuse();
                }
                return true;
            }
        }
        return false;
    }
    template <class C>
    static __device__ void resume(C& verification, residual_pass const& how, double mass) {
        if (how.judges == 0) {
            verification.emit(how.position, verification.draw_left(how, mass));
            return;
        }
        token_id const y = verification.judge_by_mass(how, mass);
        if (y == rejected_token) {
            judge(verification, how.position - 1);
        } else {
            verification.emit(how.position, y);
        }
    }

private:
    /// The longest prefix of at most `accepted` tokens whose test succeeds, and the correction behind it.
    template <class C>
    static __device__ void judge(C& verification, std::uint32_t accepted) {
        for (; accepted > 0; --accepted) {
            double const survives = verification.joint()[accepted - 1];
            if (survives >= 1.0) break;  // whatever is left
            token_id const y = verification.correct_or_reject(accepted, survives);
            if (y == no_token) return;  // until its pass is done
            if (y == rejected_token) continue;
            verification.emit(accepted, y);
            return;
        }
        verification.correct(accepted);
    }
};

}  // namespace cuda
SURELEAP_END_NAMESPACE
