//! The table of operations. A line is a name and a signature; `=` names the function for the CPU if it differs from the kernel of
//! the same name, and `=>` the one for GPUs. An operation without one is `Unavailable` there. Arguments
//! `Floats` and `FloatsMut` are in single precision on the CPU, and on a GPU in bfloat16, too; `Floats<'_>` have either type on both.

use fulmar_kernel::{AdamwStep, AttentionShape, LogProb, SgdStep};
use half::bf16;

use crate::{
    AttentionSaved, Compute, Floats, FloatsMut, MatRef, Numbers, RopeTable, Spans, View, ViewMut, cuda, kept,
    rope, rows,
};

macro_rules! operations {
    ($(fn $name:ident $(<$generic:ident>)? ($($args:tt)*) $(-> $result:ty)? $(= $cpu:path)? $(=> $cuda:path)?;)*) => {
        #[expect(clippy::too_many_arguments, reason = "a kernel has eight at most, and the handle is one more argument")]
        impl Compute {
            $(operations!(@take [$name [$($generic)?] [$($result)?] [$($cpu)?] [$($cuda)?]] [] $($args)*,);)*
        }
    };

    // Arguments: how each is taken, and what its type is.
    (@take $line:tt [$($done:tt)*] $arg:ident: View<$type:ty>, $($rest:tt)*) => {
        operations!(@take $line [$($done)* [$arg view impl Into<View<'v, $type>>]] $($rest)*);
    };
    (@take $line:tt [$($done:tt)*] $arg:ident: ViewMut<$type:ty>, $($rest:tt)*) => {
        operations!(@take $line [$($done)* [$arg view impl Into<ViewMut<'v, $type>>]] $($rest)*);
    };
    (@take $line:tt [$($done:tt)*] $arg:ident: Floats, $($rest:tt)*) => {
        operations!(@take $line [$($done)* [$arg floats impl Into<Floats<'v>>]] $($rest)*);
    };
    (@take $line:tt [$($done:tt)*] $arg:ident: FloatsMut, $($rest:tt)*) => {
        operations!(@take $line [$($done)* [$arg floats impl Into<FloatsMut<'v>>]] $($rest)*);
    };
    (@take $line:tt [$($done:tt)*] $arg:ident: Numbers, $($rest:tt)*) => {
        operations!(@take $line [$($done)* [$arg view impl Into<Numbers<'v>>]] $($rest)*);
    };
    (@take $line:tt [$($done:tt)*] $arg:ident: Option<ViewMut<$type:ty>>, $($rest:tt)*) => {
        operations!(@take $line [$($done)* [$arg option Option<ViewMut<'v, $type>>]] $($rest)*);
    };
    (@take $line:tt [$($done:tt)*] $arg:ident: MatRef<'_>, $($rest:tt)*) => {
        operations!(@take $line [$($done)* [$arg views MatRef<'_>]] $($rest)*);
    };
    (@take $line:tt [$($done:tt)*] $arg:ident: Floats<'_>, $($rest:tt)*) => {
        operations!(@take $line [$($done)* [$arg views Floats<'_>]] $($rest)*);
    };
    (@take $line:tt [$($done:tt)*] $arg:ident: AttentionSaved<'_>, $($rest:tt)*) => {
        operations!(@take $line [$($done)* [$arg views AttentionSaved<'_>]] $($rest)*);
    };
    (@take $line:tt [$($done:tt)*] $arg:ident: $type:ty, $($rest:tt)*) => {
        operations!(@take $line [$($done)* [$arg host $type]] $($rest)*);
    };
    (@take [$name:ident $generic:tt $result:tt [] $cuda:tt] $args:tt) => {
        operations!(@method $name $generic $result [fulmar_kernel::$name] $cuda $args
            concat!("[`fulmar_kernel::", stringify!($name), "`] here."));
    };
    // Private functions have no documentation page to link to.
    (@take [$name:ident $generic:tt $result:tt [$cpu:path] $cuda:tt] $args:tt) => {
        operations!(@method $name $generic $result [$cpu] $cuda $args concat!("`", stringify!($cpu), "` here."));
    };
    (@method $name:ident [$($generic:ident)?] [$($result:ty)?] [$cpu:path] [$($cuda:path)?]
        [$([$arg:ident $kind:ident $($type:tt)*])*] $doc:expr) => {
        #[doc = $doc]
        pub fn $name<'v, $($generic: Copy + 'v)?>(self, $($arg: $($type)*),*) $(-> $result)? {
            match self {
                Self::Cpu => $cpu($(operations!(@cpu $kind $arg)),*),
                Self::Cuda(card) => kept::run(stringify!($name), || {
                    operations!(@cuda $name card [$($cuda)?] $([$kind $arg])*)
                }),
            }
        }
    };

    (@cpu view $arg:ident) => { $arg.into().cpu() };
    (@cpu floats $arg:ident) => { $arg.into().f32().cpu() };
    (@cpu option $arg:ident) => { $arg.map(ViewMut::cpu) };
    (@cpu views $arg:ident) => { $arg.cpu() };
    (@cpu host $arg:ident) => { $arg };

    (@cuda $name:ident $card:ident [] $([$kind:ident $arg:ident])*) => {{
        $(let _ = $arg;)*
        Err(kept::lacking($card, stringify!($name)))
    }};
    (@cuda $name:ident $card:ident [$cuda:path] $([$kind:ident $arg:ident])*) => {
        $cuda($card, $(operations!(@on_card $card $kind $arg)),*)
    };
    (@on_card $card:ident view $arg:ident) => { $arg.into().cuda($card)? };
    (@on_card $card:ident floats $arg:ident) => { $arg.into() };
    (@on_card $card:ident option $arg:ident) => { $arg.map(|view| view.cuda($card)).transpose()? };
    (@on_card $card:ident views $arg:ident) => { $arg };
    (@on_card $card:ident host $arg:ident) => { $arg };
}

operations! {
    // Products and norms.
    fn matmul(out: ViewMut<f32>, left: MatRef<'_>, right: MatRef<'_>, accumulate: bool) => cuda::matmul;
    fn pack_in_place(weight: ViewMut<f32>, inputs: usize);
    fn unpack_in_place(weight: ViewMut<f32>, inputs: usize);
    fn add_bias(x_nd: ViewMut<f32>, bias_d: View<f32>) => cuda::add_bias;
    fn bias_backward(d_out_nd: View<f32>, d_bias_d: ViewMut<f32>) => cuda::bias_backward;
    fn rms_norm(x_nd: View<f32>, weight_d: View<f32>, eps: f32, out_nd: FloatsMut, inv_rms_n: ViewMut<f32>) => cuda::rms_norm;
    fn rms_norm_backward(x_nd: View<f32>, weight_d: View<f32>, inv_rms_n: View<f32>, d_out_nd: View<f32>, d_x_nd: ViewMut<f32>, d_weight_d: Option<ViewMut<f32>>) => cuda::rms_norm_backward;
    fn mask_overflow(out_nd: ViewMut<f32>, inv_rms_n: View<f32>) = rows::mask_overflow => cuda::mask_overflow;
    fn swiglu(gate: View<f32>, up: View<f32>, out: FloatsMut) => cuda::swiglu;
    fn swiglu_backward(gate: ViewMut<f32>, up: ViewMut<f32>, d_out: View<f32>) => cuda::swiglu_backward;
    fn sum_of_squares(x: View<f32>) -> f64 => cuda::sum_of_squares;
    fn scale(values: ViewMut<f32>, factor: f32) = rows::scale => cuda::scale;
    fn mix(x: View<f32>, y: ViewMut<f32>, a: f32, b: f32) = rows::mix => cuda::mix;

    // Attention.
    fn attention(shape: AttentionShape, q_nhe: Floats, keys: Floats<'_>, values_rke: Floats<'_>, spans: &Spans, out_nhe: FloatsMut, log_sum_nh2: ViewMut<f32>) => cuda::attention;
    fn fill_key_blocks(from: View<f32>, stride: usize, width: usize, blocks: ViewMut<f32>);
    fn put_key_rows(from_nw: View<f32>, width: usize, rows_n: Numbers, blocks: ViewMut<f32>) => cuda::put_rows;
    fn put_rounded_key_rows(from_nw: View<f32>, width: usize, rows_n: Numbers, blocks: ViewMut<bf16>);
    fn attention_backward(shape: AttentionShape, saved: AttentionSaved<'_>, spans: &Spans, blocks: &[(u32, u32)], d_out_nhe: View<f32>, d_q_nhe: ViewMut<f32>, d_keys_nke: ViewMut<f32>, d_values_nke: ViewMut<f32>) => cuda::attention_backward;
    fn rotate(table: &RopeTable, x_nhe: ViewMut<f32>, num_heads: usize, positions_n: Numbers) = fulmar_kernel::RopeTable::rotate => cuda::rotate;
    fn rotate_rounded(table: &RopeTable, x_nhe: View<f32>, num_heads: usize, positions_n: Numbers, out_nhe: ViewMut<bf16>) = rope::rotate_rounded => cuda::rotate_rounded;
    fn rotate_back(table: &RopeTable, d_nhe: ViewMut<f32>, num_heads: usize, positions_n: Numbers) = fulmar_kernel::RopeTable::rotate_back => cuda::rotate_back;

    // Tokens and their probabilities.
    fn embed(table_vd: Floats<'_>, width: usize, ids_n: Numbers, out_nd: ViewMut<f32>) => cuda::embed;
    fn embed_packed(table_vd: View<f32>, width: usize, ids_n: Numbers, out_nd: ViewMut<f32>);
    fn embed_backward(d_out_nd: View<f32>, width: usize, ids_n: &[u32], d_table_vd: ViewMut<f32>) => cuda::embed_backward;
    fn log_prob_row(logits_v: View<f32>, id: usize) -> LogProb => cuda::log_prob_row;
    fn log_prob_rows(logits_nv: View<f32>, ids_n: &[u32]) -> Vec<LogProb> => cuda::log_prob_rows;
    fn log_prob_backward_row(logits_v: ViewMut<f32>, id: usize, found: LogProb, d_log_prob: f32, d_entropy: f32) => cuda::log_prob_backward_row;
    fn log_prob_backward_rows(logits_nv: ViewMut<f32>, ids_n: &[u32], found_n: &[LogProb], d_log_prob_n: &[f32], d_entropy_n: Option<&[f32]>) => cuda::log_prob_backward_rows;
    fn cross_entropy(logits_nv: ViewMut<f32>, ids_n: &[u32]) -> f64 => cuda::cross_entropy;
    fn entropy_row(logits_v: View<f32>) -> f32 => cuda::entropy_row;
    fn softmax_row(logits_v: ViewMut<f32>) => cuda::softmax_row;
    fn log_sum_sq_prob_row(logits_v: View<f32>) -> f32 => cuda::log_sum_sq_prob_row;
    fn log_sum_sq_prob_rows(logits_nv: View<f32>, vocab: usize) -> Vec<f32> => cuda::log_sum_sq_prob_rows;
    fn top_k_log_probs(logits_v: View<f32>, k: usize) -> Vec<(u32, f32)> => cuda::top_k_log_probs;

    // Widths of stored weights.
    fn bf16_to_f32(from: View<bf16>, to: ViewMut<f32>) => cuda::bf16_to_f32;
    fn f32_to_bf16(from: View<f32>, to: ViewMut<bf16>) => cuda::f32_to_bf16;
    fn take_other_bf16(from: View<bf16>, to: ViewMut<f32>) => cuda::take_other_bf16;

    // Steps of optimisers.
    fn adamw_step(step: AdamwStep, weights: ViewMut<f32>, gradients: View<f32>, moment1: ViewMut<f32>, moment2: ViewMut<f32>) => cuda::adamw_step;
    fn sgd_step(step: SgdStep, weights: ViewMut<f32>, gradients: View<f32>, buffer: ViewMut<f32>) => cuda::sgd_step;
    fn muon_direction(gradients: View<f32>, momentum: ViewMut<f32>, direction: ViewMut<f32>, gradient_scale: f32, keep: f32, nesterov: bool) => cuda::muon_direction;
    fn newton_schulz(matrix: ViewMut<f32>, shape: (usize, usize), coefficients: (f32, f32, f32), steps: usize, eps: f32, workspace: ViewMut<f32>) => cuda::newton_schulz;

    // Rows of any type.
    fn gather<T>(from: View<T>, inner: usize, indices: &[usize], to: ViewMut<T>) = rows::gather => cuda::gather;
    fn scatter_add(from: View<f32>, inner: usize, indices: &[usize], to: ViewMut<f32>) = rows::scatter_add => cuda::scatter_add;
    fn copy<T>(from: View<T>, to: ViewMut<T>) = rows::copy => cuda::copy;
    fn fill<T>(to: ViewMut<T>, value: T) = rows::fill => cuda::fill;
    fn put_rows<T>(from: View<T>, inner: usize, rows_n: Numbers, to: ViewMut<T>) = rows::put_rows => cuda::put_rows;
    fn put_rounded_rows(from: View<f32>, inner: usize, rows_n: Numbers, to: ViewMut<bf16>) = rows::put_rounded_rows;
    fn scatter<T>(from: View<T>, inner: usize, indices: &[usize], to: ViewMut<T>) = rows::scatter => cuda::scatter;
}

/// A product of [`Compute::matmul_each`]: its place, its right operand, and a bias of its columns.
pub type EachProduct<'a> = (ViewMut<'a, f32>, MatRef<'a>, Option<View<'a, f32>>);

impl Compute {
    /// [`fulmar_kernel::matmul_each`] here, then [`Compute::add_bias`] where there is a bias.
    pub fn matmul_each<const N: usize>(self, left: MatRef<'_>, products: [EachProduct<'_>; N]) {
        match self {
            Self::Cpu => {
                let biases = products.each_ref().map(|(_, _, bias)| *bias);
                let mut products = products.map(|(out, right, _)| (out.cpu(), right.cpu()));
                fulmar_kernel::matmul_each(left.cpu(), &mut products);
                for ((out, _), bias) in products.into_iter().zip(biases) {
                    if let Some(bias) = bias {
                        fulmar_kernel::add_bias(out, bias.cpu());
                    }
                }
            }
            Self::Cuda(card) => kept::run("matmul_each", || {
                let mut each = Vec::with_capacity(N);
                for (out, right, bias) in products {
                    each.push((out.cuda(card)?, right, bias.map(|bias| bias.cuda(card)).transpose()?));
                }
                cuda::matmul_each(card, left, each)
            }),
        }
    }

    /// Computes the products `gate` and `up` as [`Compute::matmul_each`], and their [`Compute::swiglu`] in `act`.
    pub fn matmul_gated(
        self,
        left: MatRef<'_>,
        gate: (ViewMut<'_, f32>, MatRef<'_>),
        up: (ViewMut<'_, f32>, MatRef<'_>),
        act: FloatsMut<'_>,
    ) {
        match self {
            Self::Cpu => {
                let [(gate, of_gate), (up, of_up)] = [gate, up].map(|(out, right)| (out.cpu(), right.cpu()));
                fulmar_kernel::matmul_each(left.cpu(), &mut [(&mut *gate, of_gate), (&mut *up, of_up)]);
                fulmar_kernel::swiglu(gate, up, act.f32().cpu());
            }
            Self::Cuda(card) => kept::run("matmul_gated", || {
                let ((gate, of_gate), (up, of_up)) = (gate, up);
                cuda::matmul_gated(card, left, (gate.cuda(card)?, of_gate), (up.cuda(card)?, of_up), act)
            }),
        }
    }
}
