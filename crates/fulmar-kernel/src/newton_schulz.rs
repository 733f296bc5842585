//! The quintic Newton-Schulz iteration of Muon (Jordan et al., <https://kellerjordan.github.io/posts/muon/>): drives all singular
//! values of a matrix towards 1 with matrix products alone.
//!
//! ```text
//! X = G / |G|
//! repeat: A = X X^T      X = a X + (b A + c A A) X         or, where G has more rows than columns,
//!         A = X^T X      X = a X + X (b A + c A A)
//! ```

use crate::adamw::sum_of_squares;
use crate::matmul::{MatRef, matmul};

/// Returns the number of floats of the workspace that [`newton_schulz`] needs for a matrix `[rows, cols]`.
#[must_use]
pub fn newton_schulz_floats((rows, cols): (usize, usize)) -> usize {
    let short = rows.min(cols);
    rows * cols + 2 * short * short
}

/// Replaces `matrix` `[rows, cols]` by the one near it whose singular values are near 1. With the usual coefficients and 5 steps
/// they are between about 0.7 and 1.2; with `(1.5, -0.5, 0)` they converge to 1. A matrix with a norm below `eps` is divided by
/// `eps`, so zeros stay zeros. Costs `steps * (4 short^2 long + 2 short^3)` operations. `workspace` holds
/// [`newton_schulz_floats`] of any value.
///
/// # Panics
/// If `matrix` or `workspace` has another length.
///
/// # Examples
/// ```
/// use fulmar_kernel::{newton_schulz, newton_schulz_floats};
/// let mut near = [3.0, 0.0, 0.0, 5.0];
/// let mut workspace = vec![0.0; newton_schulz_floats((2, 2))];
/// newton_schulz(&mut near, (2, 2), (1.5, -0.5, 0.0), 20, 1e-7, &mut workspace);
/// assert!(near.iter().zip([1.0, 0.0, 0.0, 1.0]).all(|(a, b): (&f32, f32)| (a - b).abs() < 1e-5));
/// ```
pub fn newton_schulz(
    matrix: &mut [f32],
    (rows, cols): (usize, usize),
    (a, b, c): (f32, f32, f32),
    steps: usize,
    eps: f32,
    workspace: &mut [f32],
) {
    assert_eq!(matrix.len(), rows * cols, "matrix must hold rows x cols floats");
    assert_eq!(
        workspace.len(),
        newton_schulz_floats((rows, cols)),
        "workspace must have the floats of the shape"
    );
    let short = rows.min(cols);
    let (next, squares) = workspace.split_at_mut(rows * cols);
    let (gram, square) = squares.split_at_mut(short * short);
    let scale = 1.0 / (sum_of_squares(matrix).sqrt() as f32).max(eps);
    matrix.iter_mut().for_each(|x| *x *= scale);
    for _ in 0..steps {
        let x = MatRef::new(matrix, rows, cols);
        let (left, right) = if rows > cols { (x.transposed(), x) } else { (x, x.transposed()) };
        matmul(gram, left, right, false);
        let of_gram = MatRef::new(gram, short, short);
        matmul(square, of_gram, of_gram, false);
        for (square, gram) in square.iter_mut().zip(&*gram) {
            *square = b * gram + c * *square;
        }
        // The factor is its own transpose to the bit, as the products of an output come in one order from either side.
        let factor = MatRef::new(square, short, short);
        let (left, right) = if rows > cols { (x, factor) } else { (factor, x) };
        matmul(next, left, right, false);
        for (x, next) in matrix.iter_mut().zip(&*next) {
            *x = a * *x + next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finite_difference::random;

    const MUON: (f32, f32, f32) = (3.4445, -4.775, 2.0315);

    /// Returns the same result in double precision with three loops.
    fn naive(gradient: &[f32], rows: usize, cols: usize, steps: usize) -> Vec<f64> {
        let norm = gradient.iter().map(|g| f64::from(*g) * f64::from(*g)).sum::<f64>().sqrt();
        let at = |r: usize, c: usize| f64::from(gradient[r * cols + c]) / norm;
        let (short, long) = (rows.min(cols), rows.max(cols));
        let mut x: Vec<f64> = (0..short * long)
            .map(|i| if rows > cols { at(i % long, i / long) } else { at(i / long, i % long) })
            .collect();
        for _ in 0..steps {
            let gram: Vec<f64> = (0..short * short)
                .map(|i| (0..long).map(|k| x[i / short * long + k] * x[i % short * long + k]).sum())
                .collect();
            let mixed: Vec<f64> = (0..short * short)
                .map(|i| {
                    let square: f64 =
                        (0..short).map(|k| gram[i / short * short + k] * gram[k * short + i % short]).sum();
                    f64::from(MUON.1) * gram[i] + f64::from(MUON.2) * square
                })
                .collect();
            x = (0..short * long)
                .map(|i| {
                    let add: f64 =
                        (0..short).map(|k| mixed[i / long * short + k] * x[k * long + i % long]).sum();
                    f64::from(MUON.0) * x[i] + add
                })
                .collect();
        }
        (0..rows * cols).map(|i| if rows > cols { x[i % cols * rows + i / cols] } else { x[i] }).collect()
    }

    #[test]
    fn wide_and_tall_matrices_equal_three_loops_in_double_precision() {
        for (rows, cols) in [(5, 9), (9, 5), (7, 7), (1, 6), (6, 1)] {
            let gradient = random(3, rows * cols);
            let mut ours = gradient.clone();
            let mut workspace = vec![f32::NAN; newton_schulz_floats((rows, cols))];
            newton_schulz(&mut ours, (rows, cols), MUON, 5, 1e-7, &mut workspace);
            let worst = ours
                .iter()
                .zip(naive(&gradient, rows, cols, 5))
                .map(|(a, b)| (f64::from(*a) - b).abs())
                .fold(0.0, f64::max);
            assert!(worst < 1e-4, "{rows} x {cols}: largest difference {worst}");
        }
    }

    #[test]
    fn zeros_stay_zeros() {
        let mut zeros = [0.0; 6];
        newton_schulz(&mut zeros, (2, 3), MUON, 5, 1e-7, &mut [f32::NAN; 14]);
        assert_eq!(zeros, [0.0; 6]);
    }
}
