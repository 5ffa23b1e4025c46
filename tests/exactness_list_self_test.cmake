# SPDX-License-Identifier: MIT
#
# exactness_list.cmake notices a part of each kind that is added to the headers and to no list:
#   cmake -D INCLUDE_DIR=<dir that holds sureleap/> -D TESTS_DIR=<tests/> -D SCRATCH=<dir> -P exactness_list_self_test.cmake
cmake_minimum_required(VERSION 3.22)

# expect(<folder> <class> <its first lines>)
function(expect folder class text)
    file(REMOVE_RECURSE ${SCRATCH})
    file(COPY ${INCLUDE_DIR}/sureleap DESTINATION ${SCRATCH})
    file(WRITE ${SCRATCH}/sureleap/${folder}/${class}.hpp "#pragma once\n\n/// Added by hand.\n${text}\n};\n")
    execute_process(COMMAND ${CMAKE_COMMAND} -D INCLUDE_DIR=${SCRATCH} -D TESTS_DIR=${TESTS_DIR} -P
                            ${CMAKE_CURRENT_LIST_DIR}/exactness_list.cmake
                    RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
    if(result EQUAL 0 OR NOT output MATCHES "not in tests/support/every_[*].hpp[^\n]*\n+ *${class} [(]")
        message(SEND_ERROR "expected a report of ${class} in ${folder}/, got:\n${output}")
    endif()
endfunction()

expect(verify own_rule "template <class DraftRule>\nclass own_rule {\npublic:\n    static constexpr fidelity guarantee = fidelity::pathwise;")
expect(schedule own_live "class own_live {\npublic:\n    void admit(causal_frontier& frontier) const;")
expect(schedule own_table "struct own_table {\n    void admit(draft_table const& table, frontier_memory const& memory) const;")
expect(schedule own_plan
       "struct own_plan {\n    [[nodiscard]] std::size_t budget(planning_table<from_anchor> const& anchors) const;")
expect(serving own_adapter "template <class S>\nclass own_adapter : public schedule_adapter<S> {")
expect(drafter own_drafter "class own_drafter {\n    void draw(forward_type const& forward, DraftRule, draft_block<double>& block, Rng&);")
expect(drafter own_parallel "template <class B>\nclass own_parallel : public semi_autoregressive<B, no_head<float>> {")
expect(head own_head "class own_head {\n    void add_bias(std::span<float> state, std::span<float const> hidden, token_id, std::span<float>) const;")
file(REMOVE_RECURSE ${SCRATCH})
