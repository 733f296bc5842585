//! CPU mathematics over slices: forward and backward passes of a decoder, each next to its reference.
//!
//! Matrices are row-major `f32` slices. Every function gives the same bits for the same inputs whatever the number
//! of threads. All but [`matmul`] and [`attention`] also give the same bits on every processor and in
//! WebAssembly, because their sums run over a fixed number of lanes in a fixed order and no multiply is fused
//! with an add. [`matmul`] gives the same bits on all processors that fuse them.
//!
//! These are kernels: lengths are checked with `assert!`, because the crates above validate shapes once and a
//! mismatch here is a bug in Fulmar. Shape letters: N rows (tokens), D width, H heads, K key/value heads, E
//! width of a head, V vocabulary.

mod adamw;
mod attention;
mod embedding;
mod floats;
mod key_blocks;
mod lanes;
mod log_prob;
mod log_sum_sq;
mod matmul;
mod muon;
mod newton_schulz;
mod pages;
mod parallel;
mod power;
mod rms_norm;
mod rope;
mod sgd;
mod softmax;
mod swiglu;
#[cfg(not(target_family = "wasm"))]
mod team;
mod top_k;

pub use adamw::{AdamwStep, adamw_step, sum_of_squares};
pub use attention::{AttentionSaved, AttentionShape, Spans, attention, attention_backward};
pub use embedding::{embed, embed_backward, embed_packed};
pub use floats::{Floats, bf16_to_f32, f32_to_bf16, take_other_bf16};
pub use key_blocks::{fill_key_blocks, key_block_floats, put_key_rows, put_rounded_key_rows};
pub use lanes::{active_lanes, exp, prefetch};
pub use log_prob::{
    LogProb, cross_entropy, entropy_row, log_prob_backward_row, log_prob_backward_rows, log_prob_row,
    log_prob_rows, softmax_row, top_k_log_probs,
};
pub use log_sum_sq::{log_sum_sq_prob_row, log_sum_sq_prob_rows};
pub use matmul::{
    MatRef, MatmulPrecision, Panels, PanelsView, add_bias, bias_backward, fills_panels, matmul, matmul_each,
    pack_in_place, unpack_in_place,
};
pub use muon::muon_direction;
pub use newton_schulz::{newton_schulz, newton_schulz_floats};
pub use pages::prefer_huge_pages;
pub use parallel::{for_each_part, num_threads, with_num_threads};
pub use power::{power, power_each};
pub use rms_norm::{rms_norm, rms_norm_backward};
pub use rope::{RopeTable, rope_frequencies};
pub use sgd::{SgdStep, sgd_step};
pub use softmax::SoftmaxRow;
pub use swiglu::{swiglu, swiglu_backward};
pub use top_k::{at_least, top_k};

#[cfg(test)]
mod bits;
#[cfg(test)]
mod finite_difference;
