//! The libFuzzer target of `fulmar_fuzz::archive::run`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fulmar_fuzz::archive::run(data));
