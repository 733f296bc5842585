//! Root-mean-square normalisation (Zhang and Sennrich, <https://arxiv.org/abs/1910.07467>).
//!
//! ```text
//! s = 1 / sqrt(mean_d x^2 + eps)      y = x s w
//! dx = s (w dy - x s^2 mean_d(w dy x))      dw = sum_n dy x s
//! ```

use crate::lanes::{dot, lanes};
use crate::parallel::{add_column_sums, for_rows, for_rows2};

/// Writes the normalised rows of `x_nd` to `out_nd` and each row's `s` to `inv_rms_n`.
///
/// # Panics
/// If the lengths disagree.
///
/// # Examples
/// ```
/// let (mut out, mut inv_rms) = ([0.0; 2], [0.0; 1]);
/// fulmar_kernel::rms_norm(&[3.0, 4.0], &[1.0, 2.0], 0.0, &mut out, &mut inv_rms);
/// assert!((out[0] - 3.0 / 12.5_f32.sqrt()).abs() < 1e-6);
/// ```
pub fn rms_norm(x_nd: &[f32], weight_d: &[f32], eps: f32, out_nd: &mut [f32], inv_rms_n: &mut [f32]) {
    let width = weight_d.len();
    assert!(x_nd.len() == out_nd.len() && x_nd.len() == width * inv_rms_n.len(), "lengths must agree");
    for_rows2(out_nd, inv_rms_n, (width, 1), |first, out, inv_rms| {
        for (row, (out, inv_rms)) in out.chunks_exact_mut(width).zip(inv_rms).enumerate() {
            *inv_rms = norm_row(&x_nd[(first + row) * width..][..width], weight_d, eps, out);
        }
    });
}

/// Adds the gradients to `d_x_nd` and, if given, to `d_weight_d`, from the gradient of the output.
///
/// # Panics
/// If the lengths disagree.
pub fn rms_norm_backward(
    x_nd: &[f32],
    weight_d: &[f32],
    inv_rms_n: &[f32],
    d_out_nd: &[f32],
    d_x_nd: &mut [f32],
    d_weight_d: Option<&mut [f32]>,
) {
    let width = weight_d.len();
    assert!(x_nd.len() == d_out_nd.len() && x_nd.len() == width * inv_rms_n.len(), "lengths must agree");
    for_rows(d_x_nd, width, |first, d_x| {
        for (row, d_x) in d_x.chunks_exact_mut(width).enumerate() {
            let at = (first + row) * width;
            backward_row(
                &x_nd[at..][..width],
                weight_d,
                inv_rms_n[first + row],
                &d_out_nd[at..][..width],
                d_x,
            );
        }
    });
    let Some(d_weight_d) = d_weight_d else { return };
    add_column_sums(inv_rms_n.len(), d_weight_d, |first, end, sums| {
        for row in first..end {
            weight_row(
                &x_nd[row * width..][..width],
                inv_rms_n[row],
                &d_out_nd[row * width..][..width],
                sums,
            );
        }
    });
}

lanes! {
    fn norm_row(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) -> f32 {
        let inv_rms = 1.0 / (dot(x, x) / x.len() as f32 + eps).sqrt();
        for ((out, x), weight) in out.iter_mut().zip(x).zip(weight) {
            *out = x * inv_rms * weight;
        }
        inv_rms
    }
}

lanes! {
    fn backward_row(x: &[f32], weight: &[f32], inv_rms: f32, d_out: &[f32], d_x: &mut [f32]) {
        let mut along = 0.0;
        for ((x, weight), d_out) in x.iter().zip(weight).zip(d_out) {
            along += x * weight * d_out;
        }
        let pull = along * inv_rms * inv_rms * inv_rms / x.len() as f32;
        for (((d_x, x), weight), d_out) in d_x.iter_mut().zip(x).zip(weight).zip(d_out) {
            *d_x += weight * d_out * inv_rms - x * pull;
        }
    }
}

lanes! {
    fn weight_row(x: &[f32], inv_rms: f32, d_out: &[f32], sums: &mut [f32]) {
        for ((sum, x), d_out) in sums.iter_mut().zip(x).zip(d_out) {
            *sum += d_out * x * inv_rms;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finite_difference::{check_gradient, random, widen};

    fn loss(x: &[f64], weight: &[f64], d_out: &[f64]) -> f64 {
        let width = weight.len();
        let mut total = 0.0;
        for (x, d_out) in x.chunks(width).zip(d_out.chunks(width)) {
            let inv_rms = 1.0 / (x.iter().map(|x| x * x).sum::<f64>() / width as f64 + 1e-6).sqrt();
            total += (0..width).map(|d| x[d] * inv_rms * weight[d] * d_out[d]).sum::<f64>();
        }
        total
    }

    #[test]
    fn both_gradients_equal_finite_differences() {
        let (rows, width) = (3, 20);
        let (x, weight, d_out) = (random(1, rows * width), random(2, width), random(3, rows * width));
        let (mut out, mut inv_rms) = (vec![0.0; x.len()], vec![0.0; rows]);
        rms_norm(&x, &weight, 1e-6, &mut out, &mut inv_rms);
        let (mut d_x, mut d_weight) = (vec![0.0; x.len()], vec![0.0; width]);
        rms_norm_backward(&x, &weight, &inv_rms, &d_out, &mut d_x, Some(&mut d_weight));
        let (x64, weight64, d64) = (widen(&x), widen(&weight), widen(&d_out));
        let forward: f64 = out.iter().zip(&d64).map(|(y, d)| f64::from(*y) * d).sum();
        assert!((forward - loss(&x64, &weight64, &d64)).abs() < 1e-4);
        check_gradient("x", &x, &d_x, |x| loss(x, &weight64, &d64));
        check_gradient("weight", &weight, &d_weight, |weight| loss(&x64, weight, &d64));
    }
}
