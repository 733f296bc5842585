//! The libFuzzer target of `fulmar_fuzz::dataset::run`.
#![no_main]

libfuzzer_sys::fuzz_target!(
    // The library under it panics and is caught; libFuzzer's own hook would end the run there.
    init: std::panic::set_hook(Box::new(|_| {})),
    |data: &[u8]| fulmar_fuzz::dataset::run(data)
);
