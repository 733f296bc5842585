//! libFuzzer's door to `fulmar_fuzz::hdf5::run`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fulmar_fuzz::hdf5::run(data));
