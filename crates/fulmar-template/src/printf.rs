//! Python's `text % arguments`.

use fulmar_core::ErrorKind;
use minijinja::Error;
use minijinja::formatting::{FormatStyle, format};
use minijinja::value::{Value, ValueKind};

use crate::compare::type_name;
use crate::failure::{fail, type_error, undefined};
use crate::filter::string;
use crate::integer::Integer;
use crate::meter;
use crate::method::check_length;
use crate::print::{as_float, to_repr};
use crate::value::is_tuple;

/// Maximum number of digits after the point, more than any float has.
const PRECISION_MAX: usize = 1100;

/// One conversion, such as `%-5d`.
#[derive(Default)]
struct Conversion<'a> {
    key: Option<&'a str>,
    flags: &'a str,
    width: Size,
    precision: Option<Size>,
}

/// A width or a precision.
#[derive(Default, Clone, Copy)]
enum Size {
    #[default]
    None,
    Given(usize),
    /// `*`: given by an argument.
    Argument,
}

/// The arguments of a format, and the number of used ones.
struct Supply<'a> {
    values: &'a [Value],
    mapping: Option<&'a Value>,
    num_used: usize,
}

/// Returns `text % value`; a tuple holds several arguments.
///
/// # Errors
/// The errors of [`format_with`].
pub fn percent(text: &str, value: &Value) -> Result<String, Error> {
    if value.is_undefined() && text.contains("%(") {
        return Err(undefined("a mapping for a format must be defined, this one is undefined"));
    }
    if is_tuple(value) {
        let values: Vec<Value> = value.try_iter()?.collect();
        return format_with(text, &values, None);
    }
    let is_mapping = matches!(value.kind(), ValueKind::Map | ValueKind::Seq | ValueKind::Iterable);
    format_with(text, std::slice::from_ref(value), is_mapping.then_some(value))
}

/// Replaces the conversions in `text` by `values`, or by the values of `mapping` by name.
///
/// # Errors
/// A type error for too few or too many values or a wrong type; `OutOfRange` for an invalid conversion;
/// `LimitExceeded` for a text that is too long.
pub fn format_with(text: &str, values: &[Value], mapping: Option<&Value>) -> Result<String, Error> {
    let mut supply = Supply { values, mapping, num_used: 0 };
    let mut out = String::new();
    let mut rest = text;
    meter::read(text.len())?;
    while let Some(at) = rest.find('%') {
        append(&mut out, &rest[..at])?;
        rest = supply.convert(&mut out, &rest[at + 1..])?;
    }
    append(&mut out, rest)?;
    if mapping.is_none() && supply.num_used < values.len() {
        return Err(type_error("not all arguments converted during string formatting"));
    }
    Ok(out)
}

fn append(out: &mut String, more: &str) -> Result<(), Error> {
    check_length(out.len().checked_add(more.len()))?;
    meter::make(more.len())?;
    out.push_str(more);
    Ok(())
}

impl Supply<'_> {
    /// Writes the result of the conversion at the start of `text`; returns the rest.
    fn convert<'t>(&mut self, out: &mut String, text: &'t str) -> Result<&'t str, Error> {
        let (mut conversion, rest) = Conversion::read(text)?;
        let mut chars = rest.chars();
        let Some(kind) = chars.next() else {
            return Err(fail(ErrorKind::OutOfRange, "incomplete format"));
        };
        if kind == '%' {
            append(out, "%")?;
            return Ok(chars.as_str());
        }
        let width = self.size(conversion.width)?;
        if width.is_some_and(|(_, is_left)| is_left) {
            conversion.flags = "-";
        }
        let precision = match conversion.precision {
            Some(precision) => Some(self.size(precision)?.map_or(0, |(precision, _)| precision)),
            None => None,
        };
        let width = width.map_or(0, |(width, _)| width);
        check_length(Some(width))?;
        let value = self.value(conversion.key)?;
        let body = conversion.body(kind, &value, precision)?;
        append(out, &conversion.padded(kind, body, width)?)?;
        Ok(chars.as_str())
    }

    /// Returns a width or a precision, and whether it was negative.
    fn size(&mut self, size: Size) -> Result<Option<(usize, bool)>, Error> {
        match size {
            Size::None => Ok(None),
            Size::Given(size) => Ok(Some((size, false))),
            Size::Argument => {
                let value = self.value(None)?;
                let size = crate::arguments::as_integer(&value).ok_or_else(|| type_error("* wants int"))?;
                Ok(Some((usize::try_from(size.unsigned_abs()).unwrap_or(usize::MAX), size < 0)))
            }
        }
    }

    fn value(&mut self, key: Option<&str>) -> Result<Value, Error> {
        if let Some(key) = key {
            let Some(mapping) = self.mapping.filter(|mapping| mapping.kind() == ValueKind::Map) else {
                return Err(type_error("format requires a mapping"));
            };
            let value = mapping.get_item(&Value::from(key))?;
            if value.is_undefined() {
                return Err(fail(ErrorKind::UnknownName, format!("the mapping must have the key {key:?}")));
            }
            return Ok(value);
        }
        let value = self.values.get(self.num_used).cloned();
        self.num_used += 1;
        value.ok_or_else(|| type_error("not enough arguments for format string"))
    }
}

impl<'a> Conversion<'a> {
    /// Reads a conversion up to its letter.
    fn read(text: &'a str) -> Result<(Self, &'a str), Error> {
        let mut conversion = Self::default();
        let mut rest = text;
        if let Some(inside) = rest.strip_prefix('(') {
            let end = inside.find(')').ok_or_else(|| fail(ErrorKind::OutOfRange, "incomplete format key"))?;
            conversion.key = Some(&inside[..end]);
            rest = &inside[end + 1..];
        }
        let flags = rest.len() - rest.trim_start_matches(['-', '+', ' ', '#', '0']).len();
        (conversion.flags, rest) = rest.split_at(flags);
        (conversion.width, rest) = size(rest)?;
        if let Some(behind) = rest.strip_prefix('.') {
            let (precision, behind) = size(behind)?;
            conversion.precision = Some(precision);
            rest = behind;
        }
        Ok((conversion, rest.trim_start_matches(['h', 'l', 'L'])))
    }

    /// Returns the converted value, before it is padded.
    fn body(&self, kind: char, value: &Value, precision: Option<usize>) -> Result<String, Error> {
        if value.is_undefined() && !matches!(kind, 's' | 'r' | 'a') {
            return Err(undefined(format!("a value for %{kind} must be defined, this one is undefined")));
        }
        match kind {
            's' | 'r' | 'a' => {
                let text = match kind {
                    's' => string(value)?,
                    _ => to_repr(value).map_err(|_| {
                        fail(ErrorKind::LimitExceeded, "a value must be no longer than can be printed")
                    })?,
                };
                let text = if kind == 'a' { escaped(&text) } else { text };
                Ok(precision.map_or_else(|| text.clone(), |most| text.chars().take(most).collect()))
            }
            'c' => character(value),
            'd' | 'i' | 'u' | 'o' | 'x' | 'X' => self.integer(kind, value, precision),
            'e' | 'E' | 'f' | 'F' | 'g' | 'G' => self.float(kind, value, precision),
            kind => Err(fail(ErrorKind::OutOfRange, format!("unsupported format character '{kind}'"))),
        }
    }

    fn integer(&self, kind: char, value: &Value, precision: Option<usize>) -> Result<String, Error> {
        let wrong = || {
            let wants = if matches!(kind, 'd' | 'i' | 'u') {
                "a real number is required"
            } else {
                "an integer is required"
            };
            type_error(format!("%{kind} format: {wants}, not {}", type_name(value)))
        };
        let is_decimal = matches!(kind, 'd' | 'i' | 'u');
        if let (Some(large), true) = (value.downcast_object_ref::<Integer>(), is_decimal) {
            let (sign, digits) = split_sign(large.digits());
            return Ok(format!("{}{digits}", self.sign(sign)));
        }
        let number = match value.kind() {
            ValueKind::Bool => i128::from(value.is_true()),
            ValueKind::Number => match as_float(value) {
                Some(float) if is_decimal && float.is_finite() && float.abs() < 1e38 => float.trunc() as i128,
                Some(_) if !is_decimal => return Err(wrong()),
                Some(_) => {
                    return Err(fail(ErrorKind::OutOfRange, "cannot convert float infinity to integer"));
                }
                None => i128::try_from(value.clone()).map_err(|_| wrong())?,
            },
            _ => return Err(wrong()),
        };
        let magnitude = number.unsigned_abs();
        let digits = match kind {
            'o' => format!("{magnitude:o}"),
            'x' => format!("{magnitude:x}"),
            'X' => format!("{magnitude:X}"),
            _ => magnitude.to_string(),
        };
        let prefix = match kind {
            'o' if self.flags.contains('#') => "0o",
            'x' if self.flags.contains('#') => "0x",
            'X' if self.flags.contains('#') => "0X",
            _ => "",
        };
        let precision = precision.unwrap_or(0);
        check_length(Some(precision))?;
        let zeros = "0".repeat(precision.saturating_sub(digits.len()));
        Ok(format!("{}{prefix}{zeros}{digits}", self.sign(if number < 0 { "-" } else { "" })))
    }

    fn float(&self, kind: char, value: &Value, precision: Option<usize>) -> Result<String, Error> {
        let number = match value.kind() {
            ValueKind::Bool => f64::from(u8::from(value.is_true())),
            ValueKind::Number => match as_float(value) {
                Some(number) => number,
                None => i128::try_from(value.clone()).map_or(f64::NAN, |number| number as f64),
            },
            _ => match value.downcast_object_ref::<Integer>() {
                Some(large) => large
                    .as_float()
                    .ok_or_else(|| fail(ErrorKind::OutOfRange, "int too large to convert to float"))?,
                None => return Err(type_error(format!("must be real number, not {}", type_name(value)))),
            },
        };
        let precision = precision.unwrap_or(6);
        if precision > PRECISION_MAX {
            let detail = format!("the precision of a float must be at most {PRECISION_MAX}: got {precision}");
            return Err(fail(ErrorKind::LimitExceeded, detail));
        }
        if !number.is_finite() {
            let text = if number.is_nan() { "nan" } else { "inf" };
            let text = if kind.is_ascii_uppercase() { text.to_uppercase() } else { text.to_owned() };
            return Ok(format!("{}{text}", self.sign(if number < 0.0 { "-" } else { "" })));
        }
        let alternative = if self.flags.contains('#') { "#" } else { "" };
        let pattern = format!("%{alternative}.{precision}{kind}");
        let magnitude = format(FormatStyle::Printf, &pattern, &[Value::from(number.abs())])?;
        Ok(format!("{}{magnitude}", self.sign(if number.is_sign_negative() { "-" } else { "" })))
    }

    /// Returns a minus, or the sign that the flags require.
    fn sign(&self, minus: &str) -> String {
        match minus {
            "" if self.flags.contains('+') => "+".to_owned(),
            "" if self.flags.contains(' ') => " ".to_owned(),
            minus => minus.to_owned(),
        }
    }

    fn padded(&self, kind: char, body: String, width: usize) -> Result<String, Error> {
        let missing = width.saturating_sub(body.chars().count());
        if missing == 0 {
            return Ok(body);
        }
        meter::make(missing)?;
        if self.flags.contains('-') {
            return Ok(format!("{body}{}", " ".repeat(missing)));
        }
        let is_number = !matches!(kind, 's' | 'r' | 'a' | 'c');
        if !is_number || !self.flags.contains('0') {
            return Ok(format!("{}{body}", " ".repeat(missing)));
        }
        let head = body.len() - body.trim_start_matches(['-', '+', ' ']).len();
        let prefixed = ["0o", "0x", "0X"].iter().any(|prefix| body[head..].starts_with(prefix));
        let (head, digits) = body.split_at(if prefixed { head + 2 } else { head });
        Ok(format!("{head}{}{digits}", "0".repeat(missing)))
    }
}

fn size(text: &str) -> Result<(Size, &str), Error> {
    if let Some(rest) = text.strip_prefix('*') {
        return Ok((Size::Argument, rest));
    }
    let num_digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (digits, rest) = text.split_at(num_digits);
    if digits.is_empty() {
        return Ok((Size::None, rest));
    }
    let size = digits.parse().map_err(|_| {
        fail(ErrorKind::LimitExceeded, format!("a width must be no longer than a text may be: got {digits}"))
    })?;
    Ok((Size::Given(size), rest))
}

fn split_sign(digits: &str) -> (&str, &str) {
    digits.strip_prefix('-').map_or(("", digits), |digits| ("-", digits))
}

fn character(value: &Value) -> Result<String, Error> {
    if let Some(text) = value.as_str().filter(|text| text.chars().count() == 1) {
        return Ok(text.to_owned());
    }
    let code = crate::arguments::as_integer(value).ok_or_else(|| type_error("%c requires int or char"))?;
    let character = u32::try_from(code).ok().and_then(char::from_u32);
    character.map(String::from).ok_or_else(|| fail(ErrorKind::OutOfRange, "%c arg not in range(0x110000)"))
}

/// Escapes each character beyond ASCII.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match u32::from(c) {
            0..0x80 => escaped.push(c),
            code @ 0x80..0x100 => escaped.push_str(&format!("\\x{code:02x}")),
            code @ 0x100..0x1_0000 => escaped.push_str(&format!("\\u{code:04x}")),
            code => escaped.push_str(&format!("\\U{code:08x}")),
        }
    }
    escaped
}
