//! Loading, the decoder, its engine and its training, in one program.

mod bad_input;
mod engine;
mod folder;
mod golden;
mod heads;
mod loading;
mod parity;
mod planner;
mod training;
