//! Losses, advantages and draws against golden rows, naive twins and edges, in one program.

mod advantage;
mod batch;
mod bits;
mod bradley_terry;
mod device;
mod distillation;
mod dpo;
mod draw;
mod draw_counts;
mod extremes;
mod family;
mod grpo;
mod grpo_naive;
mod kl;
mod kto;
mod mc_advantage;
mod naive_dpo;
mod preference;
mod row_draws;
mod rows;
mod selector;
mod sequences;
mod sft;
mod squares;
mod value;
