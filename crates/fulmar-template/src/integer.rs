//! Integers beyond 128 bits, which the engine cannot represent. They keep their digits, and can be printed,
//! compared and written as JSON; arithmetic refuses them.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use fulmar_core::ErrorKind;
use fulmar_core::limits::INTEGER_DIGITS_MAX;
use minijinja::Error;
use minijinja::value::{DynObject, Object, ObjectRepr, Value};

use crate::failure::fail;

/// Decimal digits without leading zeros, with a minus sign if negative.
#[derive(Debug, PartialEq, Eq)]
pub struct Integer {
    digits: String,
}

/// Returns the value of decimal digits with or without a sign; up to 128 bits, the engine's own integer.
///
/// # Errors
/// `LimitExceeded` for more than `INTEGER_DIGITS_MAX` digits.
pub fn from_digits(digits: &str) -> Result<Value, Error> {
    if let Ok(small) = digits.parse::<i128>() {
        return Ok(small_integer(small));
    }
    let (sign, unsigned) = match digits.strip_prefix('-') {
        Some(unsigned) => ("-", unsigned),
        None => ("", digits.strip_prefix('+').unwrap_or(digits)),
    };
    let unsigned = unsigned.trim_start_matches('0');
    if unsigned.len() > INTEGER_DIGITS_MAX {
        let got = unsigned.len();
        let detail = format!("an integer must have at most {INTEGER_DIGITS_MAX} digits, this one has {got}");
        return Err(fail(ErrorKind::LimitExceeded, detail));
    }
    if let Ok(small) = format!("{sign}{unsigned}").parse::<i128>() {
        return Ok(small_integer(small));
    }
    Ok(Value::from_object(Integer { digits: format!("{sign}{unsigned}") }))
}

/// Returns the engine's smallest form of an integer.
pub fn small_integer(number: i128) -> Value {
    i64::try_from(number).map_or_else(|_| Value::from(number), Value::from)
}

impl Integer {
    /// Returns its digits.
    pub fn digits(&self) -> &str {
        &self.digits
    }

    /// Returns whether it is below 0.
    pub fn is_negative(&self) -> bool {
        self.digits.starts_with('-')
    }

    /// Returns the nearest float; `None` if it is beyond all floats.
    pub fn as_float(&self) -> Option<f64> {
        self.digits.parse().ok().filter(|float: &f64| float.is_finite())
    }

    /// Compares exactly with a float; `None` for NaN.
    pub fn compare_float(&self, number: f64) -> Option<Ordering> {
        if number.is_nan() {
            return None;
        }
        if number.is_infinite() {
            return Some(if number > 0.0 { Ordering::Less } else { Ordering::Greater });
        }
        // A float of this size has no fraction, and prints all its digits. A smaller one is nearer to 0.
        Some(compare_digits(&self.digits, &format!("{:.0}", number.trunc())))
    }
}

impl Ord for Integer {
    fn cmp(&self, other: &Self) -> Ordering {
        compare_digits(&self.digits, &other.digits)
    }
}

impl PartialOrd for Integer {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

fn compare_digits(a: &str, b: &str) -> Ordering {
    let magnitude = |a: &str, b: &str| a.len().cmp(&b.len()).then_with(|| a.cmp(b));
    match (a.strip_prefix('-'), b.strip_prefix('-')) {
        (None, None) => magnitude(a, b),
        (Some(a), Some(b)) => magnitude(b, a),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
    }
}

impl Object for Integer {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn is_true(self: &Arc<Self>) -> bool {
        true
    }

    fn custom_cmp(self: &Arc<Self>, other: &DynObject) -> Option<Ordering> {
        Some(Ord::cmp(&**self, other.downcast_ref::<Self>()?))
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.digits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn integer(digits: &str) -> Integer {
        Integer { digits: digits.to_owned() }
    }

    #[test]
    fn integers_compare_as_numbers() {
        let large = "9".repeat(40);
        let digits = [format!("-1{large}"), format!("-{large}"), large.clone(), format!("1{large}")];
        for (at, a) in digits.iter().enumerate() {
            for (other_at, b) in digits.iter().enumerate() {
                assert_eq!(integer(a).cmp(&integer(b)), at.cmp(&other_at));
            }
        }
        let power = integer(&format!("1{}", "0".repeat(40)));
        // The nearest float is 10000000000000000303786028427003666890752.
        assert_eq!(power.compare_float(1e40), Some(Ordering::Less));
        assert_eq!(power.compare_float(-1e300), Some(Ordering::Greater));
        assert_eq!(power.compare_float(0.5), Some(Ordering::Greater));
        assert_eq!(power.compare_float(f64::NAN), None);
        assert_eq!(power.compare_float(f64::INFINITY), Some(Ordering::Less));
    }

    #[test]
    fn digits_take_the_smallest_form() {
        assert_eq!(from_digits("-0012").unwrap().as_i64(), Some(-12));
        assert_eq!(from_digits("+5").unwrap().as_i64(), Some(5));
        let zeros = format!("{}7", "0".repeat(INTEGER_DIGITS_MAX + 1));
        assert_eq!(from_digits(&zeros).unwrap().as_i64(), Some(7));
        let most = "9".repeat(INTEGER_DIGITS_MAX);
        assert_eq!(from_digits(&most).unwrap().to_string(), most);
        assert!(from_digits(&format!("{most}9")).is_err());
    }
}
