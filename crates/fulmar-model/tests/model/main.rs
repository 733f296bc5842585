//! Loading, the decoder, its engine and its training, in one program.

#![expect(clippy::expect_used, reason = "a test may end where its setting is wrong")]

mod bad_input;
mod engine;
mod folder;
mod golden;
mod heads;
mod kept;
mod loading;
mod parity;
mod planner;
mod precision;
mod speculation;
mod training;

use fulmar_core::Device;
use fulmar_model::Decoder;

/// Returns the device of the decoders of these tests: the CPU, or that of `FULMAR_TEST_DEVICE`. `scripts/cuda.mjs` runs those of
/// goldens, parity, the engine and training on the emulated GPU, too.
fn device() -> Device {
    std::env::var("FULMAR_TEST_DEVICE")
        .map_or(Device::Cpu, |name| name.parse().expect("the name of a device"))
}

/// Moves a decoder to the device of these tests.
fn placed(mut decoder: Decoder) -> Decoder {
    decoder.move_to(device()).expect("the device must be there");
    decoder
}

/// Returns whether long tests run their short form. `scripts/targets.mjs` asks for it, as they would take
/// minutes emulated.
fn is_short() -> bool {
    std::env::var_os("FULMAR_TEST_SHORT").is_some()
}
