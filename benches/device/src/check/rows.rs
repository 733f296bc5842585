//! Rows moved by their numbers or added, scaling, mixing, filling, and the first number that is not finite.

use fulmar_core::{Result, Rng};
use fulmar_cuda::{Card, Grid, arguments};

use super::{elements, lengths, with_large};
use crate::numbers::random;
use crate::report::Report;

const THREADS: u32 = 256;

/// Rows there, rows moved, and elements of a row.
const SHAPES: [(usize, usize, usize); 12] = [
    (1, 1, 1),
    (2, 1, 3),
    (5, 5, 31),
    (7, 3, 32),
    (9, 9, 33),
    (4, 2, 255),
    (4, 4, 256),
    (6, 5, 257),
    (3, 3, 511),
    (3, 2, 513),
    (100, 64, 7),
    (50, 50, 768),
];

/// The plan of rows that are added: different indices, the end of each one's rows, and rows by index.
pub struct Plan {
    pub index: Vec<u32>,
    pub ends: Vec<u32>,
    pub rows: Vec<u32>,
}

/// Compares every kernel with a loop over rows.
///
/// # Errors
/// Errors of the GPU's driver.
pub fn check(card: &Card, report: &mut Report) -> Result<()> {
    for shape in with_large(card, &SHAPES, &[(151_936, 16_384, 16)]) {
        for size in [1, 2, 4, 8] {
            moved(card, report, shape, size)?;
        }
        for odd in [0.0, f32::NAN, f32::NEG_INFINITY, -0.0] {
            added(card, report, shape, odd)?;
        }
    }
    for len in lengths(card) {
        scaled(card, report, len)?;
        mixed(card, report, len)?;
        filled(card, report, len)?;
        for place in [0, len / 2, len - 1, len] {
            for odd in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                first_non_finite(card, report, len, (place, odd))?;
            }
        }
    }
    Ok(())
}

fn moved(
    card: &Card,
    report: &mut Report,
    (there, count, width): (usize, usize, usize),
    size: usize,
) -> Result<()> {
    let bytes = width * size;
    let mut rng = Rng::new(22).stream("rows").fork((there * bytes) as u64);
    let from: Vec<u8> = (0..there * bytes).map(|_| rng.next_u32() as u8).collect();
    // Both ends are among the rows that are moved.
    let mut index: Vec<u32> = (0..there as u32).collect();
    index.reverse();
    index.swap(count.min(there - 1), there - 1);
    index.truncate(count);
    let row = |of: &[u8], at: usize| of[at * bytes..][..bytes].to_vec();
    let gathered: Vec<u8> = index.iter().flat_map(|at| row(&from, *at as usize)).collect();
    let (from_at, index_at, to) = (card.upload(&from)?, card.upload(&index)?, card.poisoned(count * bytes)?);
    let grid = Grid::of_rows(count, THREADS, 0);
    card.launch(&format!("gather_rows_{size}"), grid, arguments![&from_at, &index_at, &to, width])?;
    let shape = format!("{count} of {there} x {width} of {size} bytes");
    report.same("gather_rows", &shape, &to.read()?, &gathered);

    let mut scattered = vec![0xff; there * bytes];
    for (n, at) in index.iter().enumerate() {
        scattered[*at as usize * bytes..][..bytes].copy_from_slice(&from[n * bytes..][..bytes]);
    }
    let to = card.poisoned(there * bytes)?;
    card.launch(&format!("scatter_rows_{size}"), grid, arguments![&from_at, &index_at, &to, width])?;
    report.same("scatter_rows", &shape, &to.read()?, &scattered);
    Ok(())
}

/// Twice as many rows as are there, so that most come several times; the first number of each is `odd`, if that is not 0.
fn added(
    card: &Card,
    report: &mut Report,
    (there, count, width): (usize, usize, usize),
    odd: f32,
) -> Result<()> {
    let count = 2 * count;
    let mut rng = Rng::new(22).stream("added").fork((there * width) as u64);
    let mut index: Vec<u32> = (0..count).map(|_| rng.next_u32() % there as u32).collect();
    // Both ends, and one that repeats at the ends of the batch.
    index[0] = there as u32 - 1;
    index[count / 2] = 0;
    index[count - 1] = index[0];
    let mut from = random("added", count * width, 1e3);
    let mut to = random("to", there * width, 1.0);
    if odd.to_bits() != 0 {
        from.chunks_exact_mut(width).for_each(|row| row[0] = odd);
        to.chunks_exact_mut(width).step_by(2).for_each(|row| row[0] = odd);
    }
    let plan = Plan::of(&index);
    let (from_at, to_at) = (card.upload(&from)?, card.upload(&to)?);
    let (index_at, ends_at, rows_at) =
        (card.upload(&plan.index)?, card.upload(&plan.ends)?, card.upload(&plan.rows)?);
    let grid = Grid::of_rows(plan.index.len(), THREADS, 0);
    let arguments = arguments![&from_at, &index_at, &ends_at, &rows_at, width, &to_at];
    card.launch("scatter_add_rows", grid, arguments)?;
    for (row, at) in from.chunks_exact(width).zip(&index) {
        to[*at as usize * width..][..width].iter_mut().zip(row).for_each(|(to, from)| *to += from);
    }
    report.same("scatter_add_rows", &format!("{count} to {there} x {width}, {odd}"), &to_at.read()?, &to);
    Ok(())
}

fn filled(card: &Card, report: &mut Report, len: usize) -> Result<()> {
    const VALUE: u64 = 0x0123_4567_89ab_cdef;
    // The last element stays.
    let to = card.poisoned::<u64>(len + 1)?;
    card.launch("fill_8", elements(), arguments![&to, VALUE, len])?;
    let mut wanted = vec![VALUE; len];
    wanted.push(u64::MAX);
    report.same("fill_8", &len.to_string(), &to.read()?, &wanted);
    Ok(())
}

fn scaled(card: &Card, report: &mut Report, len: usize) -> Result<()> {
    let mut numbers = random("scale", len, 3.0);
    let at = card.upload(&numbers)?;
    card.launch("scale", elements(), arguments![&at, 0.3_f32, len])?;
    numbers.iter_mut().for_each(|number| *number *= 0.3);
    report.same("scale", &len.to_string(), &at.read()?, &numbers);
    Ok(())
}

fn mixed(card: &Card, report: &mut Report, len: usize) -> Result<()> {
    let (x, mut y) = (random("mix x", len, 3.0), random("mix y", len, 3.0));
    let (x_at, y_at) = (card.upload(&x)?, card.upload(&y)?);
    card.launch("mix", elements(), arguments![&x_at, &y_at, 0.3_f32, -1.7_f32, len])?;
    y.iter_mut().zip(&x).for_each(|(y, x)| *y = 0.3 * x + -1.7 * *y);
    report.same("mix", &len.to_string(), &y_at.read()?, &y);
    Ok(())
}

/// The first number that is not finite is `odd` at `place`; others of all kinds follow.
fn first_non_finite(card: &Card, report: &mut Report, len: usize, (place, odd): (usize, f32)) -> Result<()> {
    let mut numbers = random("finite", len, f32::MAX);
    let later = [(place + 1, f32::INFINITY), (place + 300, f32::NAN), (place + 400, f32::NEG_INFINITY)];
    for (at, odd) in later.into_iter().chain([(place, odd)]) {
        if let Some(number) = numbers.get_mut(at) {
            *number = odd;
        }
    }
    let wanted = numbers.iter().position(|number| !number.is_finite()).map_or(u32::MAX, |at| at as u32);
    let (at, first) = (card.upload(&numbers)?, card.upload(&[u32::MAX])?);
    card.launch("first_non_finite", elements(), arguments![&at, len, &first])?;
    report.same("first_non_finite", &format!("{len}, {odd} at {place}"), &first.read()?, &[wanted]);
    Ok(())
}

impl Plan {
    /// Returns the plan for rows `0, 1, ...` that are added to the rows of these numbers.
    pub fn of(index_n: &[u32]) -> Self {
        let mut rows: Vec<u32> = (0..index_n.len() as u32).collect();
        rows.sort_by_key(|row| index_n[*row as usize]);
        let mut plan = Self { index: Vec::new(), ends: Vec::new(), rows };
        for (at, row) in plan.rows.iter().enumerate() {
            let index = index_n[*row as usize];
            if plan.index.last() != Some(&index) {
                plan.index.push(index);
                plan.ends.push(0);
            }
            if let Some(end) = plan.ends.last_mut() {
                *end = at as u32 + 1;
            }
        }
        plan
    }
}
