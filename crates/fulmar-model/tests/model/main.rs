//! Loading, the decoder, its engine and its training, in one program.

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

/// Returns whether long tests run their short form. `scripts/targets.mjs` asks for it, as they would take
/// minutes emulated.
fn is_short() -> bool {
    std::env::var_os("FULMAR_TEST_SHORT").is_some()
}
