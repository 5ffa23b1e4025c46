// SPDX-License-Identifier: MIT
//
// sureleap_llama.h from Rust, over a llama_context of any binding of llama.cpp: a text to start from, which no test
// here compiles. Structs are those of include/sureleap/ext/llama/c/decoder.h, or what bindgen makes of it; options
// begin with their size, so that others are refused. Link with the library of examples/llama/sureleap_llama.cpp.
use std::ffi::{c_char, c_void, CStr};

#[repr(C)]
#[derive(Clone, Copy)]
struct Transform { temperature: f64, top_k: i32, top_p: f64, min_p: f64 }

#[repr(C)]
struct Options {
    struct_size: usize, target: *mut c_void, draft: *mut c_void, dspark: *mut c_void, lookup: i32, rule: i32,
    schedule: i32, never_lose: i32, max_requests: usize, block_size: usize, tree_nodes: usize, fixed_length: usize,
    threshold: f64, prior: f64, lag: usize, cost: *const c_void, seed: u64, first_sequence: i32,
    draft_first_sequence: i32,
}

#[repr(C)]
struct Request {
    prompt: *const i32, prompt_count: usize, sampler: *mut c_void, sampler_sees_prompt: i32, target: Transform,
    draft: Transform, seed: u64, max_new_tokens: usize, stop_tokens: *const i32, stop_token_count: usize,
    stops_at_end: i32, max_draft_tokens: usize, priority: f64, log_probabilities: i32,
}

#[repr(C)]
struct Event {
    id: u64, tokens: *const i32, count: usize, log_probabilities: *const f64, outcome: i32, finished: i32,
}

#[repr(C)]
struct Error { code: i32, text: [c_char; 508] }

extern "C" {
    fn sureleap_llama_options_init(options: *mut Options);
    fn sureleap_llama_bytes() -> usize;
    fn sureleap_llama_create(options: *const Options, memory: *mut c_void, bytes: usize, made: *mut *mut c_void,
                             error: *mut Error) -> i32;
    fn sureleap_llama_destroy(decoder: *mut c_void) -> i32;
    fn sureleap_llama_request_init(request: *mut Request);
    fn sureleap_llama_submit(decoder: *mut c_void, request: *const Request, id: *mut u64) -> i32;
    fn sureleap_llama_step(decoder: *mut c_void, events: *mut *const Event, count: *mut usize) -> i32;
    fn sureleap_llama_error(decoder: *const c_void) -> *const c_char;
}

/// Gives `take` the tokens behind the prompt, as many at a time as drafts were right about.
///
/// # Safety
/// `context` is a live llama_context that nobody else uses meanwhile.
pub unsafe fn generate(context: *mut c_void, prompt: &[i32], mut take: impl FnMut(&[i32])) -> Result<(), String> {
    let mut options: Options = std::mem::zeroed();
    sureleap_llama_options_init(&mut options);
    options.target = context;
    let mut memory = vec![0u8; sureleap_llama_bytes()];
    let (mut decoder, mut error): (*mut c_void, Error) = (std::ptr::null_mut(), std::mem::zeroed());
    if sureleap_llama_create(&options, memory.as_mut_ptr().cast(), memory.len(), &mut decoder, &mut error) != 0 {
        return Err(CStr::from_ptr(error.text.as_ptr()).to_string_lossy().into_owned());
    }
    let mut request: Request = std::mem::zeroed();
    sureleap_llama_request_init(&mut request);
    (request.prompt, request.prompt_count, request.target.temperature) = (prompt.as_ptr(), prompt.len(), 0.7);
    let (mut id, mut events, mut count) = (0, std::ptr::null(), 1);
    let mut ok = sureleap_llama_submit(decoder, &request, &mut id) == 0;
    let mut failed = 0;
    while ok && count > 0 {
        ok = sureleap_llama_step(decoder, &mut events, &mut count) == 0;
        for i in 0..if ok { count } else { 0 } {
            let event: &Event = &*events.add(i);
            failed = event.outcome;  // it stands still then, and no step has events any more
            if event.count > 0 { take(std::slice::from_raw_parts(event.tokens, event.count)); }
        }
    }
    let text = CStr::from_ptr(sureleap_llama_error(decoder)).to_string_lossy().into_owned();
    sureleap_llama_destroy(decoder);
    match (ok, failed) {
        (true, 0) => Ok(()),
        (true, outcome) => Err(format!("a round failed with outcome {outcome}")),
        _ => Err(text),
    }
}
