//! Rows of a table by ids, and the table's gradient.

use fulmar_core::{Result, Rng};
use fulmar_cuda::{Card, Grid, arguments};
use half::bf16;

use super::rows::Plan;
use super::with_large;
use crate::numbers::random;
use crate::report::Report;

const THREADS: u32 = 256;

/// Rows of the table, their width, and ids: one below and above a vector, a block of threads and a round of vectors.
const SHAPES: [(usize, usize, usize); 13] = [
    (1, 1, 1),
    (2, 3, 5),
    (5, 4, 9),
    (7, 8, 3),
    (3, 255, 4),
    (4, 256, 7),
    (4, 257, 2),
    (9, 258, 30),
    (2, 1_020, 3),
    (3, 1_024, 5),
    (3, 1_028, 4),
    (100, 64, 200),
    (300, 896, 33),
];

/// Compares both passes at every shape.
///
/// # Errors
/// Errors of the GPU's driver.
pub fn check(card: &Card, report: &mut Report) -> Result<()> {
    for (vocab, width, count) in with_large(card, &SHAPES, &[(151_936, 64, 8_192)]) {
        let mut rng = Rng::new(22).stream("ids").fork((vocab * width) as u64);
        let mut ids: Vec<u32> = (0..count).map(|_| rng.next_u32() % vocab as u32).collect();
        // Both ends of the table, and one id that repeats.
        ids[0] = vocab as u32 - 1;
        ids[count / 2] = 0;
        ids[count - 1] = ids[0];
        let shape = format!("{count} of {vocab} x {width}");
        looked_up(card, report, &shape, &ids, (vocab, width))?;
        gradient(card, report, &shape, &ids, (vocab, width))?;
    }
    Ok(())
}

fn looked_up(
    card: &Card,
    report: &mut Report,
    shape: &str,
    ids: &[u32],
    (vocab, width): (usize, usize),
) -> Result<()> {
    // The table begins at its second element too, as it may in a buffer of weights.
    let numbers = random("table", vocab * width + 1, 2.0);
    let halves: Vec<bf16> = numbers.iter().map(|number| bf16::from_f32(*number)).collect();
    let (numbers_at, halves_at, ids_at) = (card.upload(&numbers)?, card.upload(&halves)?, card.upload(ids)?);
    let grid = Grid::of_rows(ids.len(), THREADS, 0);
    let mut wanted = vec![0.0; ids.len() * width];
    for first in [0, 1] {
        let len = vocab * width;
        let name = format!("{shape}, from element {first}");
        let out = card.poisoned(wanted.len())?;
        card.launch("embed_f32", grid, arguments![numbers_at.from(first), &ids_at, &out, width])?;
        fulmar_kernel::embed(numbers[first..][..len].into(), width, ids, &mut wanted);
        report.same("embed_f32", &name, &out.read()?, &wanted);
        let out = card.poisoned(wanted.len())?;
        card.launch("embed_bf16", grid, arguments![halves_at.from(first), &ids_at, &out, width])?;
        fulmar_kernel::embed(halves[first..][..len].into(), width, ids, &mut wanted);
        report.same("embed_bf16", &name, &out.read()?, &wanted);
    }
    Ok(())
}

fn gradient(
    card: &Card,
    report: &mut Report,
    shape: &str,
    ids: &[u32],
    (vocab, width): (usize, usize),
) -> Result<()> {
    let mut d_table = random("d_table", vocab * width, 1.0);
    let d_out = random("d_out", ids.len() * width, 1.0);
    let plan = Plan::of(ids);
    let (d_table_at, d_out_at) = (card.upload(&d_table)?, card.upload(&d_out)?);
    let (ids_at, ends_at, rows_at) =
        (card.upload(&plan.index)?, card.upload(&plan.ends)?, card.upload(&plan.rows)?);
    let grid = Grid::of_rows(plan.index.len(), THREADS, 0);
    let arguments = arguments![&d_out_at, &ids_at, &ends_at, &rows_at, width, &d_table_at];
    card.launch("scatter_add_rows", grid, arguments)?;
    fulmar_kernel::embed_backward(&d_out, width, ids, &mut d_table);
    report.same("scatter_add_rows, table", shape, &d_table_at.read()?, &d_table);
    Ok(())
}
