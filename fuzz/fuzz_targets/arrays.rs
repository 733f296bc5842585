//! The libFuzzer target of `fulmar_fuzz::arrays::run`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fulmar_fuzz::arrays::run(data));
