//! Casts between f32, bfloat16 and f16.

use fulmar_core::Result;
use fulmar_cuda::{Card, arguments};
use half::{bf16, f16};

use super::{elements, lengths};
use crate::numbers::random;
use crate::report::Report;

/// Numbers whose rounding is special: ties both ways, the largest, subnormal ones, infinities and NaNs.
const SPECIAL: [u32; 16] = [
    0x0000_0000,
    0x8000_0000,
    0x3f80_8000,
    0x3f81_8000,
    0x3f80_8001,
    0x3f80_7fff,
    0x7f7f_ffff,
    0xff7f_ffff,
    0x0000_0001,
    0x0000_8000,
    0x0001_8000,
    0x7f80_0000,
    0xff80_0000,
    0x7f80_0001,
    0xffff_ffff,
    0x7fc0_1234,
];

/// The same for f16: ties both ways, the largest and the least that becomes infinite, subnormal ones and the least that does not
/// become 0, infinities and NaNs.
const SPECIAL_F16: [u32; 20] = [
    0x0000_0000,
    0x8000_0000,
    0x3f80_1000,
    0x3f80_3000,
    0x3f80_1001,
    0x3f80_0fff,
    0x477f_e000,
    0x477f_efff,
    0x477f_f000,
    0x7f7f_ffff,
    0x3880_0000,
    0x387f_f000,
    0x3300_0000,
    0x3300_0001,
    0xb340_0000,
    0x0000_0001,
    0x7f80_0000,
    0xff80_0000,
    0x7f80_0001,
    0xffff_f234,
];

/// Compares every cast at every length.
///
/// # Errors
/// Errors of the GPU's driver.
pub fn check(card: &Card, report: &mut Report) -> Result<()> {
    for len in lengths(card) {
        let mut numbers = random("cast", len, 1e3);
        for (number, bits) in numbers.iter_mut().zip(SPECIAL) {
            *number = f32::from_bits(bits);
        }
        let shape = len.to_string();
        let mut halves = vec![bf16::ZERO; len];
        fulmar_kernel::f32_to_bf16(&numbers, &mut halves);
        let (from, to) = (card.upload(&numbers)?, card.poisoned::<u16>(len)?);
        card.launch("f32_to_bf16", elements(), arguments![&from, &to, len])?;
        report.same("f32_to_bf16", &shape, &to.read()?, &bits_of(&halves));

        let mut wide = vec![0.0; len];
        fulmar_kernel::bf16_to_f32(&halves, &mut wide);
        let (from, to) = (card.upload(&bits_of(&halves))?, card.poisoned::<f32>(len)?);
        card.launch("bf16_to_f32", elements(), arguments![&from, &to, len])?;
        report.same("bf16_to_f32", &shape, &to.read()?, &wide);

        let others: Vec<bf16> = halves.iter().enumerate().map(|(at, half)| changed(*half, at)).collect();
        let (from, to) = (card.upload(&bits_of(&others))?, card.upload(&numbers)?);
        fulmar_kernel::take_other_bf16(&others, &mut numbers);
        card.launch("take_other_bf16", elements(), arguments![&from, &to, len])?;
        report.same("take_other_bf16", &shape, &to.read()?, &numbers);

        let mut numbers = random("f16", len, 1e5);
        for (number, bits) in numbers.iter_mut().zip(SPECIAL_F16) {
            *number = f32::from_bits(bits);
        }
        to_f16(card, report, &shape, &numbers)?;
    }
    every_f16(card, report)
}

fn to_f16(card: &Card, report: &mut Report, shape: &str, numbers: &[f32]) -> Result<()> {
    let wanted: Vec<u16> = numbers.iter().map(|number| f16::from_f64((*number).into()).to_bits()).collect();
    let (from, to) = (card.upload(numbers)?, card.poisoned::<u16>(numbers.len())?);
    card.launch("f32_to_f16", elements(), arguments![&from, &to, numbers.len()])?;
    report.same("f32_to_f16", shape, &to.read()?, &wanted);
    Ok(())
}

/// Each half to f32; and to f16 each f32 that is a half, or between two of them, or next to either.
fn every_f16(card: &Card, report: &mut Report) -> Result<()> {
    let halves: Vec<u16> = (0..=u16::MAX).collect();
    let wide: Vec<f32> = halves.iter().map(|half| f16::from_bits(*half).to_f32()).collect();
    let (from, to) = (card.upload(&halves)?, card.poisoned::<f32>(halves.len())?);
    card.launch("f16_to_f32", elements(), arguments![&from, &to, halves.len()])?;
    report.same("f16_to_f32", "every half", &to.read()?, &wide);
    let nearby = |(number, next): (&f32, &f32)| {
        let middle = number + (next - number) / 2.0;
        [*number, middle].map(|number| [number.next_down(), number, number.next_up()])
    };
    let numbers: Vec<f32> = wide.iter().zip(&wide[1..]).flat_map(nearby).flatten().collect();
    to_f16(card, report, "near every half", &numbers)
}

/// Returns every third number with another lowest bit.
fn changed(half: bf16, at: usize) -> bf16 {
    bf16::from_bits(half.to_bits() ^ u16::from(at % 3 == 1))
}

fn bits_of(values: &[bf16]) -> Vec<u16> {
    values.iter().map(|value| value.to_bits()).collect()
}
