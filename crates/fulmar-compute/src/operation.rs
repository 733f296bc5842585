//! The table of operations. A line is a name and a signature; `=` names the function if it differs from the
//! kernel of the same name.

use fulmar_kernel::{
    AdamwStep, AttentionSaved, AttentionShape, Floats, LogProb, MatRef, RopeTable, SgdStep, Spans,
};
use half::bf16;

use crate::{Compute, dispatch, rows};

macro_rules! operations {
    ($(fn $name:ident $(<$generic:ident>)? ($($arg:ident: $type:ty),*) $(-> $result:ty)? $(= $cpu:path)?;)*) => {
        #[expect(clippy::too_many_arguments, reason = "a kernel has eight at most, and the handle is one more argument")]
        impl Compute {
            $(operations!(@method $name [$($generic)?] [$($arg: $type),*] [$($result)?] [$($cpu)?]);)*
        }
    };
    (@method $name:ident $generics:tt $args:tt $result:tt []) => {
        operations!(@documented $name $generics $args $result [fulmar_kernel::$name]
            concat!("[`fulmar_kernel::", stringify!($name), "`] here."));
    };
    // Private functions have no documentation page to link to.
    (@method $name:ident $generics:tt $args:tt $result:tt [$cpu:path]) => {
        operations!(@documented $name $generics $args $result [$cpu] concat!("`", stringify!($cpu), "` here."));
    };
    (@documented $name:ident [$($generic:ident)?] [$($arg:ident: $type:ty),*] [$($result:ty)?] [$cpu:path] $doc:expr) => {
        #[doc = $doc]
        pub fn $name$(<$generic: Copy>)?(self, $($arg: $type),*) $(-> $result)? {
            dispatch!(self, cpu => $cpu($($arg),*))
        }
    };
}

operations! {
    // Products and norms.
    fn matmul(out: &mut [f32], left: MatRef<'_>, right: MatRef<'_>, accumulate: bool);
    fn matmul_each(left: MatRef<'_>, products: &mut [(&mut [f32], MatRef<'_>)]);
    fn add_bias(x_nd: &mut [f32], bias_d: &[f32]);
    fn bias_backward(d_out_nd: &[f32], d_bias_d: &mut [f32]);
    fn rms_norm(x_nd: &[f32], weight_d: &[f32], eps: f32, out_nd: &mut [f32], inv_rms_n: &mut [f32]);
    fn rms_norm_backward(x_nd: &[f32], weight_d: &[f32], inv_rms_n: &[f32], d_out_nd: &[f32], d_x_nd: &mut [f32], d_weight_d: Option<&mut [f32]>);
    fn swiglu(gate: &[f32], up: &[f32], out: &mut [f32]);
    fn swiglu_backward(gate: &mut [f32], up: &mut [f32], d_out: &[f32]);
    fn sum_of_squares(x: &[f32]) -> f64;
    fn scale(values: &mut [f32], factor: f32) = rows::scale;

    // Attention.
    fn attention(shape: AttentionShape, q_nhe: &[f32], keys_rke: &[f32], values_rke: &[f32], spans: &Spans, out_nhe: &mut [f32], log_sum_nh2: &mut [f32]);
    fn attention_backward(shape: AttentionShape, saved: AttentionSaved<'_>, spans: &Spans, blocks: &[(u32, u32)], d_out_nhe: &[f32], d_q_nhe: &mut [f32], d_keys_nke: &mut [f32], d_values_nke: &mut [f32]);
    fn rotate(table: &RopeTable, x_nhe: &mut [f32], num_heads: usize, positions_n: &[u32]) = RopeTable::rotate;
    fn rotate_back(table: &RopeTable, d_nhe: &mut [f32], num_heads: usize, positions_n: &[u32]) = RopeTable::rotate_back;

    // Tokens and their probabilities.
    fn embed(table_vd: Floats<'_>, width: usize, ids_n: &[u32], out_nd: &mut [f32]);
    fn embed_backward(d_out_nd: &[f32], width: usize, ids_n: &[u32], d_table_vd: &mut [f32]);
    fn log_prob_row(logits_v: &[f32], id: usize) -> LogProb;
    fn log_prob_rows(logits_nv: &[f32], ids_n: &[u32]) -> Vec<LogProb>;
    fn log_prob_backward_row(logits_v: &mut [f32], id: usize, found: LogProb, d_log_prob: f32, d_entropy: f32);
    fn log_prob_backward_rows(logits_nv: &mut [f32], ids_n: &[u32], found_n: &[LogProb], d_log_prob_n: &[f32], d_entropy_n: Option<&[f32]>);
    fn cross_entropy(logits_nv: &mut [f32], ids_n: &[u32]) -> f64;
    fn entropy_row(logits_v: &[f32]) -> f32;
    fn softmax_row(logits_v: &mut [f32]);
    fn log_sum_sq_prob_row(logits_v: &[f32]) -> f32;
    fn log_sum_sq_prob_rows(logits_nv: &[f32], vocab: usize) -> Vec<f32>;
    fn top_k_log_probs(logits_v: &[f32], k: usize) -> Vec<(u32, f32)>;

    // Widths of stored weights.
    fn bf16_to_f32(from: &[bf16], to: &mut [f32]);
    fn f32_to_bf16(from: &[f32], to: &mut [bf16]);
    fn take_other_bf16(from: &[bf16], to: &mut [f32]);

    // Steps of optimisers.
    fn adamw_step(step: AdamwStep, weights: &mut [f32], gradients: &[f32], moment1: &mut [f32], moment2: &mut [f32]);
    fn sgd_step(step: SgdStep, weights: &mut [f32], gradients: &[f32], buffer: &mut [f32]);
    fn newton_schulz(gradient: &[f32], shape: (usize, usize), coefficients: (f32, f32, f32), steps: usize, eps: f32) -> Vec<f32>;

    // Rows of any type.
    fn gather<T>(from: &[T], inner: usize, indices: &[usize], to: &mut [T]) = rows::gather;
    fn scatter_add(from: &[f32], inner: usize, indices: &[usize], to: &mut [f32]) = rows::scatter_add;
    fn copy<T>(from: &[T], to: &mut [T]) = rows::copy;
    fn fill<T>(to: &mut [T], value: T) = rows::fill;
    fn scatter<T>(from: &[T], inner: usize, indices: &[usize], to: &mut [T]) = rows::scatter;
}
