//! The quintic Newton-Schulz iteration of Muon (Jordan et al., <https://kellerjordan.github.io/posts/muon/>): drives all singular
//! values of a matrix towards 1 with matrix products alone.
//!
//! ```text
//! X = G / |G|, transposed where G has more rows than columns
//! repeat: A = X X^T      X = a X + (b A + c A A) X
//! ```

use crate::adamw::sum_of_squares;
use crate::matmul::{MatRef, matmul};

/// Returns the matrix `[rows, cols]` near `gradient` whose singular values are near 1. With the usual
/// coefficients and 5 steps they are between about 0.7 and 1.2; with `(1.5, -0.5, 0)` they converge to 1. A
/// gradient with a norm below `eps` is divided by `eps`, so zeros stay zeros. Costs `steps * (4 short^2 long
/// + 2 short^3)` operations.
///
/// # Panics
/// If `gradient` does not hold `rows * cols` floats.
///
/// # Examples
/// ```
/// let near = fulmar_kernel::newton_schulz(&[3.0, 0.0, 0.0, 5.0], (2, 2), (1.5, -0.5, 0.0), 20, 1e-7);
/// assert!(near.iter().zip([1.0, 0.0, 0.0, 1.0]).all(|(a, b): (&f32, f32)| (a - b).abs() < 1e-5));
/// ```
#[must_use]
pub fn newton_schulz(
    gradient: &[f32],
    (rows, cols): (usize, usize),
    (a, b, c): (f32, f32, f32),
    steps: usize,
    eps: f32,
) -> Vec<f32> {
    assert_eq!(gradient.len(), rows * cols, "gradient must hold rows x cols floats");
    let is_tall = rows > cols;
    let (short, long) = (rows.min(cols), rows.max(cols));
    let scale = 1.0 / (sum_of_squares(gradient).sqrt() as f32).max(eps);
    let mut x: Vec<f32> = gradient.iter().map(|value| value * scale).collect();
    if is_tall {
        x = transpose(&x, rows, cols);
    }
    let (mut gram, mut square) = (vec![0.0; short * short], vec![0.0; short * short]);
    let mut next = vec![0.0; x.len()];
    for _ in 0..steps {
        let of_x = MatRef::new(&x, short, long);
        matmul(&mut gram, of_x, of_x.transposed(), false);
        let of_gram = MatRef::new(&gram, short, short);
        matmul(&mut square, of_gram, of_gram, false);
        for (square, gram) in square.iter_mut().zip(&gram) {
            *square = b * gram + c * *square;
        }
        matmul(&mut next, MatRef::new(&square, short, short), of_x, false);
        for (x, next) in x.iter_mut().zip(&next) {
            *x = a * *x + next;
        }
    }
    if is_tall { transpose(&x, cols, rows) } else { x }
}

fn transpose(x: &[f32], rows: usize, cols: usize) -> Vec<f32> {
    let mut out = Vec::with_capacity(x.len());
    for col in 0..cols {
        out.extend((0..rows).map(|row| x[row * cols + col]));
    }
    out
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
            let ours = newton_schulz(&gradient, (rows, cols), MUON, 5, 1e-7);
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
        assert_eq!(newton_schulz(&[0.0; 6], (2, 3), MUON, 5, 1e-7), [0.0; 6]);
    }
}
