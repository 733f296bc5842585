//! The libFuzzer target of `fulmar_fuzz::hdf5::run`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fulmar_fuzz::hdf5::run(data));
